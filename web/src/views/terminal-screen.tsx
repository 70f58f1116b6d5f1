/** A terminal's rows and cursor, and the field that takes what is typed, pasted and composed. */
import { memo } from "preact/compat";
import { useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";
import type { SharedTerminal } from "../state/terminals";
import type { Line } from "../term/cells";
import { keyData, pasteData, type Key } from "../term/keys";
import { say } from "../state/ui";
import { LineView } from "./output-rows";
import { FONT_PX, LINE_PX, type Size } from "./use-size";

/** Below this size, in pixels, letters are not read; then the screen scrolls instead. */
const MIN_FONT_PX = 8;
/** Lines per notch of a wheel. */
const WHEEL_LINES = 3;

interface Props {
  terminal: SharedTerminal;
  input: RefObject<HTMLTextAreaElement | null>;
  ended: boolean;
  /** For a screen of another's size: the room there is. */
  fit: Size | undefined;
  ctrl: boolean;
  setCtrl: (on: boolean) => void;
  onLeave: () => void;
}

export function TerminalScreen(props: Props) {
  const { terminal, input, ended, fit } = props;
  void terminal.version.value;
  const { grid } = terminal;
  const [back, setBack] = useState(0);
  const shown = Math.min(back, grid.above);
  const scroll = (lines: number): void => setBack(Math.max(0, Math.min(grid.above, shown + lines)));
  const box = useRef<HTMLDivElement>(null);
  const typing = useTyping(props, box, scroll, () => setBack(0));
  const font = fit ? fontFor(grid.cols, fit) : FONT_PX;
  const line = Math.round((LINE_PX * font) / FONT_PX);
  const onWheel = (event: WheelEvent): void => {
    const lines = Math.sign(event.deltaY) * WHEEL_LINES;
    if (!grid.full) return scroll(-lines);
    // Programs with the whole screen scroll by themselves.
    if (!ended) typing.press(lines > 0 ? "ArrowDown" : "ArrowUp", WHEEL_LINES);
  };
  return (
    <div class="screen" ref={box} onWheel={onWheel} onClick={() => !getSelection()?.toString() && input.current?.focus({ preventScroll: true })} data-cols={grid.cols} data-rows={grid.rows}>
      <div class="grid" style={{ fontSize: `${font}px`, lineHeight: `${line}px`, width: `${grid.cols}ch` }} aria-live="off" data-testid="terminal-screen">
        {grid.lines(shown).map((one) => (
          <GridLine key={one.id} line={one} text={keyOf(one)} px={line} />
        ))}
        {shown === 0 && !ended && <Cursor at={grid.cursor} px={line} />}
        <textarea
          ref={input}
          class="typed"
          data-testid="terminal-input"
          style={{ left: `${grid.cursor?.x ?? 0}ch`, top: `${(grid.cursor?.y ?? 0) * line}px` }}
          aria-label="Terminal. What you type goes to everybody's. Ctrl+Shift+Escape leaves it."
          autocapitalize="off"
          autocomplete="off"
          autocorrect="off"
          spellcheck={false}
          rows={1}
          readOnly={ended}
          onKeyDown={typing.onKeyDown}
          onBeforeInput={typing.onBeforeInput}
          onInput={typing.onInput}
          onCompositionEnd={typing.onInput}
          onPaste={typing.onPaste}
        />
      </div>
      {shown > 0 && (
        <button class="jump" data-testid="terminal-latest" onClick={() => setBack(0)}>
          Jump to latest
        </button>
      )}
    </div>
  );
}

function fontFor(cols: number, { width, letter }: Size): number {
  return Math.max(MIN_FONT_PX, Math.min(FONT_PX, Math.floor((FONT_PX * width * 10) / (cols * letter)) / 10));
}

const keyOf = (line: Line): string => line.runs.map((run) => `${run.cls}|${run.fg ?? ""}|${run.bg ?? ""}|${run.text}`).join("\0");

/** Drawn again only where its text or colours changed. */
const GridLine = memo(
  function GridLine({ line, px }: { line: Line; text: string; px: number }) {
    return (
      <div style={{ height: `${px}px` }}>
        <LineView line={line} />
      </div>
    );
  },
  (a, b) => a.text === b.text && a.px === b.px,
);

function Cursor({ at, px }: { at: { x: number; y: number } | undefined; px: number }) {
  if (!at) return null;
  return <i class="cursor" aria-hidden="true" style={{ left: `${at.x}ch`, top: `${at.y * px}px`, height: `${px}px` }} />;
}

function useTyping({ terminal, ended, ctrl, setCtrl, onLeave }: Props, box: RefObject<HTMLElement | null>, scroll: (lines: number) => void, toEnd: () => void) {
  const { grid, input } = terminal;
  const send = (data: string): void => {
    if (ended) return;
    toEnd();
    input.type(data);
  };
  const press = (key: string, times = 1): void => {
    const data = keyData({ key, ctrlKey: false, altKey: false, shiftKey: false, metaKey: false }, grid.modes);
    if (data) send(data.repeat(times));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const { key, ctrlKey, altKey, shiftKey, metaKey } = event;
    if (event.isComposing || key === "Process" || key === "Dead" || key === "Unidentified") return;
    // Whatever the terminal takes is not the page's as well.
    event.stopPropagation();
    const held: Key = { key, ctrlKey: ctrlKey || ctrl, altKey, shiftKey, metaKey, altGraph: event.getModifierState("AltGraph") };
    if (key === "Escape" && ctrlKey && shiftKey) onLeave();
    else if (shiftKey && !ctrlKey && (key === "PageUp" || key === "PageDown")) scroll(key === "PageUp" ? grid.rows - 1 : 1 - grid.rows);
    else if (key === "Insert" && shiftKey) return;
    else if (key.toLowerCase() === "c" && held.ctrlKey && hasSelection(box.current)) copySelection();
    else if (ended) return;
    else {
      const data = keyData(held, grid.modes);
      if (data === undefined) return;
      send(data);
      setCtrl(false);
    }
    event.preventDefault();
  };
  const onBeforeInput = (event: InputEvent): void => {
    // Keyboards on a screen tell no keys, but what they want to change.
    if (event.inputType === "deleteContentBackward") press("Backspace");
    else if (event.inputType === "insertLineBreak") press("Enter");
    else return;
    event.preventDefault();
  };
  const onInput = (event: Event): void => {
    const field = event.currentTarget as HTMLTextAreaElement;
    if ("isComposing" in event && event.isComposing) return;
    const text = field.value;
    field.value = "";
    const held = ctrl && text.length === 1 ? keyData({ key: text, ctrlKey: true, altKey: false, shiftKey: false, metaKey: false }, grid.modes) : undefined;
    if (text) send(held ?? text);
    setCtrl(false);
  };
  const onPaste = (event: ClipboardEvent): void => {
    event.preventDefault();
    const text = event.clipboardData?.getData("text/plain");
    if (text) send(pasteData(text, grid.modes.bracketedPasteMode));
  };
  return { press, onKeyDown, onBeforeInput, onInput, onPaste };
}

function hasSelection(box: HTMLElement | null): boolean {
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && box !== null && selection.containsNode(box, true);
}

function copySelection(): void {
  const text = getSelection()!.toString();
  void navigator.clipboard.writeText(text).then(() => say("Copied"), () => say("Copying is blocked by the browser.", true));
  getSelection()!.removeAllRanges();
}
