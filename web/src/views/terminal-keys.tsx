/** Keys that a phone's keyboard does not have, below a terminal. */
import type { RefObject } from "preact";
import type { SharedTerminal } from "../state/terminals";
import { keyData } from "../term/keys";

const KEYS = [
  ["Esc", "Escape"],
  ["Tab", "Tab"],
  ["←", "ArrowLeft", "Left"],
  ["↑", "ArrowUp", "Up"],
  ["↓", "ArrowDown", "Down"],
  ["→", "ArrowRight", "Right"],
] as const;

interface Props {
  terminal: SharedTerminal;
  input: RefObject<HTMLTextAreaElement | null>;
  ctrl: boolean;
  setCtrl: (on: boolean) => void;
}

export function TerminalKeys({ terminal, input, ctrl, setCtrl }: Props) {
  const press = (key: string): void => {
    const data = keyData({ key, ctrlKey: ctrl, altKey: false, shiftKey: false, metaKey: false }, terminal.grid.modes);
    if (data) terminal.input.type(data);
    setCtrl(false);
    input.current?.focus({ preventScroll: true });
  };
  // The keyboard would go away with the focus.
  const keep = (event: Event): void => event.preventDefault();
  return (
    <div class="term-keys" role="group" aria-label="Keys" onPointerDown={keep} onMouseDown={keep}>
      <button class="small" aria-pressed={ctrl} data-testid="key-ctrl" onClick={() => (setCtrl(!ctrl), input.current?.focus({ preventScroll: true }))}>
        Ctrl
      </button>
      {KEYS.map(([shown, key, label]) => (
        <button key={key} class="small" aria-label={label} data-testid={`key-${key}`} onClick={() => press(key)}>
          {shown}
        </button>
      ))}
    </div>
  );
}
