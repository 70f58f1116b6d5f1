/** What is typed: message or command, its limits, and the lines typed before. Pure. */
import type { Limits } from "../protocol";

export type Mode = "message" | "run";
export interface Typed {
  mode: Mode;
  text: string;
}

/** `!cmd` and `/run cmd` are commands in either mode; in run mode everything is. */
export function parse(raw: string, mode: Mode): Typed {
  const text = raw.trim();
  if (text.startsWith("!") && text.length > 1) return { mode: "run", text: text.slice(1).trim() };
  const run = /^\/run(?:\s+|$)/u.exec(text);
  if (run) return { mode: "run", text: text.slice(run[0].length).trim() };
  return { mode, text };
}

/** Why it can't be sent, or undefined. Counts as PROTOCOL does: code points, bytes for commands. */
export function refusal(typed: Typed, limits: Partial<Limits>): string | undefined {
  if (typed.text === "") return typed.mode === "run" ? "Type a command to run, such as ls." : "Type something first.";
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
