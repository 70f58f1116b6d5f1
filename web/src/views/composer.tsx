/** Where a person types: a message, a command for the sandbox, or a question to the agent. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { History, mentionAt, parse, refusal, unknownCommand, type Mode } from "../model/composer";
import { agentOf } from "../state/agent";
import { limits } from "../state/app";
import type { RoomSession } from "../state/room-session";
import * as storage from "../state/storage";
import { fill } from "../state/ui";

/** A typing sign is repeated at most this often, and ends after this long without a key. */
const TYPING_EVERY_MS = 3000;
const TYPING_ENDS_MS = 5000;

function useTyping(session: RoomSession) {
  const state = useRef({ sentTs: 0, timer: 0 as unknown as ReturnType<typeof setTimeout> });
  const stop = (): void => {
    clearTimeout(state.current.timer);
    if (state.current.sentTs) session.typing(false);
    state.current.sentTs = 0;
  };
  const touch = (): void => {
    if (Date.now() - state.current.sentTs > TYPING_EVERY_MS) {
      state.current.sentTs = Date.now();
      session.typing(true);
    }
    clearTimeout(state.current.timer);
    state.current.timer = setTimeout(stop, TYPING_ENDS_MS);
  };
  useEffect(() => stop, [session]);
  return { touch, stop };
}

function readHistory(room: string): History {
  try {
    const lines: unknown = JSON.parse(storage.read(`history.${room}`) ?? "[]");
    return new History(Array.isArray(lines) ? lines.filter((line) => typeof line === "string") : []);
  } catch {
    return new History();
  }
}

export function Composer({ session, label }: { session: RoomSession; label: string }) {
  const box = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(() => storage.read(`draft.${session.id}`) ?? "");
  const [mode, setMode] = useState<Mode>("message");
  const [problem, setProblem] = useState<string>();
  const [lines] = useState(() => readHistory(session.id));
  const typing = useTyping(session);
  const agent = agentOf(session);
  const chosen = mode === "ask" && !agent ? "message" : mode;
  const typed = parse(text, chosen);
  const mention = useMention(agent?.name, box, text);
  const change = (to: string): void => {
    setText(to);
    setProblem(undefined);
    storage.write(`draft.${session.id}`, to);
  };
  const wanted = fill.value;
  useEffect(() => {
    if (!wanted) return;
    fill.value = undefined;
    setMode(wanted.mode);
    change(wanted.text);
    box.current?.focus();
  }, [wanted]);
  useLayoutEffect(() => grow(box.current), [text, mode]);
  useEffect(() => {
    // On a phone it would bring up the keyboard over the conversation.
    if (matchMedia("(hover: hover)").matches) box.current?.focus();
  }, []);

  const send = (): void => {
    const why = unknownCommand(text, chosen) ?? refusal(typed, limits.value);
    if (why) return void (text.trim() || mode === "run" ? setProblem(why) : undefined);
    session.say(typed.mode, typed.text);
    const line = PREFIX[typed.mode] + typed.text;
    lines.push(unknownCommand(line, "message") ? ` ${line}` : line);
    storage.write(`history.${session.id}`, JSON.stringify(lines.lines));
    typing.stop();
    change("");
    box.current?.focus();
  };
  const recall = (line: string | undefined): boolean => {
    if (line === undefined) return false;
    const prefix = PREFIX[mode];
    change(line.startsWith(prefix) ? line.slice(prefix.length) : line);
    return true;
  };
  const complete = (): void => {
    const { offered } = mention;
    if (!offered) return;
    const before = `${text.slice(0, offered.from)}@${agent!.name} `;
    change(before + text.slice(offered.to).replace(/^ /u, ""));
    requestAnimationFrame(() => {
      box.current?.focus();
      box.current?.setSelectionRange(before.length, before.length);
    });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.isComposing) return;
    const area = box.current!;
    if (mention.offered && event.key === "Tab" && plain(event)) complete();
    else if (mention.offered && event.key === "Escape") mention.dismiss();
    else if (event.key === "Enter" && !event.shiftKey) send();
    else if (event.key === "ArrowUp" && plain(event) && atFirstLine(area) && recall(lines.up(text))) toEnd(area);
    else if (event.key === "ArrowDown" && plain(event) && atLastLine(area) && recall(lines.down())) toEnd(area);
    else return;
    event.preventDefault();
  };
  return (
    <form
      class={`composer${typed.mode === "run" ? " run" : ""}`}
      data-testid="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div class="box">
        {problem && (
          <p class="problem" id="composer-problem" role="alert" data-testid="composer-problem">
            {problem}
          </p>
        )}
        {mention.offered && (
          <p class="complete" role="status">
            <button type="button" class="small" data-testid="complete-mention" onClick={complete}>
              @{agent?.name}
            </button>
            <span>
              asks the agent · <kbd>Tab</kbd> completes it
            </span>
          </p>
        )}
        <label class="sr" for="composer">
          {LABELS[typed.mode](agent?.name ?? "the agent", label)}
        </label>
        <textarea
          id="composer"
          ref={box}
          data-testid="composer-input"
          rows={1}
          enterkeyhint="send"
          value={text}
          placeholder={PLACEHOLDERS[chosen](agent?.name, label)}
          aria-describedby={problem ? "composer-problem" : undefined}
          aria-invalid={problem ? true : undefined}
          spellcheck={typed.mode !== "run"}
          autocapitalize={typed.mode === "run" ? "off" : undefined}
          onInput={(event) => {
            change(event.currentTarget.value);
            if (event.currentTarget.value.trim()) typing.touch();
            else typing.stop();
          }}
          onKeyDown={onKeyDown}
          onSelect={mention.look}
        />
        <div class="row">
          <Modes
            mode={typed.mode}
            agent={agent?.name}
            choose={(to) => {
              setMode(to);
              change(typed.text);
              box.current?.focus();
            }}
          />
          <span class="hint">Shift+Enter for a new line</span>
          <button class="primary" data-testid="send">
            {SEND[typed.mode]}
          </button>
        </div>
      </div>
    </form>
  );
}

/** What stands before a line in the history, so that it is sent the same way again. */
const PREFIX: { readonly [mode in Mode]: string } = { message: "", run: "!", ask: "/ask " };
const SEND: { readonly [mode in Mode]: string } = { message: "Send", run: "Run", ask: "Ask" };
const LABELS: { readonly [mode in Mode]: (agent: string, room: string) => string } = {
  message: (_, room) => `Message ${room}`,
  run: (_, room) => `Command for ${room}`,
  ask: (agent) => `Question to ${agent}`,
};
const PLACEHOLDERS: { readonly [mode in Mode]: (agent: string | undefined, room: string) => string } = {
  // With three ways to send beside each other below, the short form is enough.
  message: (agent, room) => (agent ? `Message ${room}` : `Message ${room}, or !command`),
  run: () => "Run a command in the sandbox",
  ask: (agent) => `Ask ${agent}; it can run commands here`,
};

/** Offers `@name` while its beginning stands before the caret, until it is dismissed. */
function useMention(name: string | undefined, box: { current: HTMLTextAreaElement | null }, text: string) {
  const [caret, setCaret] = useState(0);
  const [dismissed, setDismissed] = useState<number>();
  const look = (): void => setCaret(box.current?.selectionEnd ?? 0);
  useLayoutEffect(look, [text]);
  const found = name === undefined ? undefined : mentionAt(text, caret, name);
  const offered = found && found.from !== dismissed ? found : undefined;
  useEffect(() => {
    if (!found) setDismissed(undefined);
  }, [!found]);
  return { offered, look, dismiss: () => setDismissed(found?.from) };
}

function Modes({ mode, agent, choose }: { mode: Mode; agent: string | undefined; choose: (mode: Mode) => void }) {
  return (
    <div class="modes" role="group" aria-label="What to send">
      <button type="button" class="chip" aria-pressed={mode === "message"} data-testid="mode-message" onClick={() => choose("message")}>
        Message
      </button>
      <button type="button" class="chip" aria-pressed={mode === "run"} data-testid="mode-run" title="Run it in the sandbox; ! or /run at the start does the same" onClick={() => choose("run")}>
        ! Run
      </button>
      {agent && (
        <button type="button" class="chip" aria-pressed={mode === "ask"} data-testid="mode-ask" title={`Ask ${agent}; /ask or @${agent} does the same`} onClick={() => choose("ask")}>
          @ Ask {agent}
        </button>
      )}
    </div>
  );
}

/** Past this height, in pixels, the box scrolls. */
const MAX_HEIGHT_PX = 220;

function grow(area: HTMLTextAreaElement | null): void {
  if (!area) return;
  area.style.height = "auto";
  area.style.height = `${Math.min(MAX_HEIGHT_PX, area.scrollHeight)}px`;
}

const plain = (event: KeyboardEvent): boolean => !event.shiftKey && !event.altKey && !event.ctrlKey && !event.metaKey;
const atFirstLine = (area: HTMLTextAreaElement): boolean => area.selectionStart === area.selectionEnd && !area.value.slice(0, area.selectionStart).includes("\n");
const atLastLine = (area: HTMLTextAreaElement): boolean => area.selectionStart === area.selectionEnd && !area.value.slice(area.selectionEnd).includes("\n");

/** After the value was set: the caret stands behind it. */
function toEnd(area: HTMLTextAreaElement): void {
  requestAnimationFrame(() => area.setSelectionRange(area.value.length, area.value.length));
}
