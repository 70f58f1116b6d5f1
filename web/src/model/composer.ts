/** What is typed: message, command or question to the agent, its limits, and the lines typed before. Pure. */
import type { Limits } from "../protocol";

export type Mode = "message" | "run" | "ask";
export interface Typed {
  mode: Mode;
  text: string;
}

/** `!cmd` and `/run cmd` are commands in any mode, `/ask` asks the agent; else it is what the mode says. */
export function parse(raw: string, mode: Mode): Typed {
  const text = raw.trim();
  if (text.startsWith("!") && text.length > 1) return { mode: "run", text: text.slice(1).trim() };
  const run = /^\/run(?:\s+|$)/u.exec(text);
  if (run) return { mode: "run", text: text.slice(run[0].length).trim() };
  const ask = /^\/ask(?:\s+|$)/u.exec(text);
  if (ask) return { mode: "ask", text: text.slice(ask[0].length).trim() };
  return { mode, text };
}

/** Characters of a name that may stand before the caret after "@"; as the server's names. */
const MENTION = /(?:^|[^\w@./-])@([\w-]{0,64})$/u;

/** The beginning of an `@name` that ends at the caret and may become `name`; undefined where there is none. */
export function mentionAt(text: string, caret: number, name: string): { from: number; to: number } | undefined {
  const found = MENTION.exec(text.slice(0, caret));
  const typed = found?.[1];
  if (typed === undefined || /^[\w-]/u.test(text.slice(caret))) return undefined;
  if (typed.length === name.length || !name.toLowerCase().startsWith(typed.toLowerCase())) return undefined;
  return { from: caret - typed.length - 1, to: caret };
}

/** What looks like a command of the composer; a path such as /etc/hosts does not. */
const SLASH = /^(\/[a-z][\w-]*)(?:\s|$)/iu;
const COMMANDS: ReadonlySet<string> = new Set(["/run", "/ask"]);
const ANYWAY = "Put a space before it to send it as it is.";

/** Why what was meant as a command is none, or undefined. `raw` is what stands in the box. */
export function unknownCommand(raw: string, mode: Mode): string | undefined {
  if (raw.trimEnd() === "!") return `Type a command after the !, such as !ls. ${ANYWAY}`;
  const slash = SLASH.exec(raw)?.[1];
  // In a shell it is the path of a program.
  if (!slash || mode === "run" || COMMANDS.has(slash)) return undefined;
  return `There is no command ${slash}. /run or ! runs a command in the sandbox, /ask asks the agent. ${ANYWAY}`;
}

const EMPTY: { readonly [mode in Mode]: string } = {
  message: "Type something first.",
  run: "Type a command to run, such as ls.",
  ask: "Type a question first, such as: what is in this folder?",
};

/** Why it can't be sent, or undefined. Counts as PROTOCOL does: code points, bytes for commands. */
export function refusal(typed: Typed, limits: Partial<Limits>): string | undefined {
  if (typed.text === "") return EMPTY[typed.mode];
  if (typed.text.includes("\0")) return "The text holds a NUL character, which can't be sent. Remove it.";
  if (typed.mode === "run") {
    const bytes = new TextEncoder().encode(typed.text).length;
    if (limits.commandBytes && bytes > limits.commandBytes)
      return `This command is ${bytes.toLocaleString("en")} bytes; at most ${limits.commandBytes.toLocaleString("en")} are allowed. Put it into a file and run that.`;
    return undefined;
  }
  const chars = [...typed.text].length;
  if (limits.textChars && chars > limits.textChars)
    return `This message has ${chars.toLocaleString("en")} characters; at most ${limits.textChars.toLocaleString("en")} are allowed. Shorten it or send it in parts.`;
  return undefined;
}

/** Lines kept; a session rarely goes further back. */
const HISTORY_LINES = 100;

/** Lines sent before, walked with the arrow keys; the unsent draft waits at the end. */
export class History {
  #lines: string[];
  #at: number;
  #draft = "";

  constructor(lines: readonly string[] = []) {
    this.#lines = lines.slice(-HISTORY_LINES);
    this.#at = this.#lines.length;
  }

  get lines(): readonly string[] {
    return this.#lines;
  }

  push(line: string): void {
    if (this.#lines.at(-1) !== line) this.#lines = [...this.#lines, line].slice(-HISTORY_LINES);
    this.#at = this.#lines.length;
    this.#draft = "";
  }

  /** The line before, or undefined at the first; `current` is what stands in the box now. */
  up(current: string): string | undefined {
    if (this.#at === 0) return undefined;
    if (this.#at === this.#lines.length) this.#draft = current;
    this.#at -= 1;
    return this.#lines[this.#at];
  }

  down(): string | undefined {
    if (this.#at >= this.#lines.length) return undefined;
    this.#at += 1;
    return this.#at === this.#lines.length ? this.#draft : this.#lines[this.#at];
  }
}
