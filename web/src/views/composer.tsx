/** Where a person types: a message, or a command for the sandbox. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { History, parse, refusal, type Mode } from "../model/composer";
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
  const typed = parse(text, mode);
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
    const why = refusal(typed, limits.value);
    if (why) return void (text.trim() || mode === "run" ? setProblem(why) : undefined);
    session.say(typed.mode, typed.text);
    lines.push(typed.mode === "run" ? `!${typed.text}` : typed.text);
    storage.write(`history.${session.id}`, JSON.stringify(lines.lines));
    typing.stop();
    change("");
    box.current?.focus();
  };
  const recall = (line: string | undefined): boolean => {
    if (line === undefined) return false;
    change(mode === "run" && line.startsWith("!") ? line.slice(1) : line);
    return true;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.isComposing) return;
    const area = box.current!;
    if (event.key === "Enter" && !event.shiftKey) send();
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
        <label class="sr" for="composer">
          {typed.mode === "run" ? `Command for ${label}` : `Message ${label}`}
        </label>
        <textarea
          id="composer"
          ref={box}
          data-testid="composer-input"
          rows={1}
          enterkeyhint="send"
          value={text}
          placeholder={mode === "run" ? "Run a command in the sandbox" : `Message ${label}, or !command`}
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
        />
        <div class="row">
          <Modes
            mode={typed.mode}
            choose={(to) => {
              setMode(to);
              change(typed.text);
              box.current?.focus();
            }}
          />
          <span class="hint">Shift+Enter for a new line</span>
          <button class="primary" data-testid="send">
            {typed.mode === "run" ? "Run" : "Send"}
          </button>
        </div>
      </div>
    </form>
  );
}

function Modes({ mode, choose }: { mode: Mode; choose: (mode: Mode) => void }) {
  return (
    <div class="modes" role="group" aria-label="What to send">
      <button type="button" class="chip" aria-pressed={mode === "message"} data-testid="mode-message" onClick={() => choose("message")}>
        Message
      </button>
      <button type="button" class="chip" aria-pressed={mode === "run"} data-testid="mode-run" title="Run it in the sandbox; ! or /run at the start does the same" onClick={() => choose("run")}>
        ! Run
      </button>
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
