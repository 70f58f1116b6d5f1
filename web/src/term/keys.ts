/** What a terminal sends for a key: xterm's sequences. Pure; what is not here is left to the browser. */

export interface Key {
  readonly key: string;
  readonly ctrlKey: boolean;
  readonly altKey: boolean;
  readonly shiftKey: boolean;
  readonly metaKey: boolean;
  /** AltGr, which some systems tell as Ctrl and Alt. */
  readonly altGraph?: boolean;
}
export interface Modes {
  /** The program asked for the other form of the arrow keys. */
  readonly applicationCursorKeysMode: boolean;
}

const ESC = "\x1b";
const CURSOR: { readonly [key: string]: string } = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };
const TILDE: { readonly [key: string]: number } = {
  Insert: 2, Delete: 3, PageUp: 5, PageDown: 6,
  F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21, F11: 23, F12: 24,
};
const F_KEYS: { readonly [key: string]: string } = { F1: "P", F2: "Q", F3: "R", F4: "S" };
/** Control characters of keys that are no letters. */
const CONTROLS: { readonly [key: string]: string } = {
  " ": "\0", "@": "\0", "2": "\0", "[": ESC, "3": ESC, "\\": "\x1c", "4": "\x1c", "]": "\x1d", "5": "\x1d",
  "^": "\x1e", "6": "\x1e", _: "\x1f", "7": "\x1f", "/": "\x1f", "8": "\x7f", "?": "\x7f",
};

/** xterm's number for the keys that are held. */
const heldOf = (key: Key): number => 1 + (key.shiftKey ? 1 : 0) + (key.altKey ? 2 : 0) + (key.ctrlKey ? 4 : 0);

/** The characters of a key; undefined: the terminal has nothing to do with it. */
export function keyData(key: Key, modes: Modes): string | undefined {
  if (key.metaKey) return undefined;
  return named(key, modes) ?? (isCharacter(key.key) ? character(key) : undefined);
}

function named(key: Key, modes: Modes): string | undefined {
  const held = heldOf(key);
  const alt = key.altKey ? ESC : "";
  const cursor = CURSOR[key.key];
  if (cursor) return held > 1 ? `${ESC}[1;${held}${cursor}` : `${ESC}${modes.applicationCursorKeysMode ? "O" : "["}${cursor}`;
  const f = F_KEYS[key.key];
  if (f) return held > 1 ? `${ESC}[1;${held}${f}` : `${ESC}O${f}`;
  const tilde = TILDE[key.key];
  if (tilde) return held > 1 ? `${ESC}[${tilde};${held}~` : `${ESC}[${tilde}~`;
  switch (key.key) {
    case "Enter":
      return `${alt}\r`;
    case "Tab":
      return key.ctrlKey ? undefined : key.shiftKey ? `${ESC}[Z` : "\t";
    case "Backspace":
      return alt + (key.ctrlKey ? "\b" : "\x7f");
    case "Escape":
      return alt + ESC;
    default:
      return undefined;
  }
}

const isCharacter = (key: string): boolean => [...key].length === 1;

function character(key: Key): string | undefined {
  if (key.altGraph) return key.key;
  const alt = key.altKey ? ESC : "";
  if (!key.ctrlKey) return alt + key.key;
  // With Shift as well they are the browser's: copying, pasting, its tools.
  if (key.shiftKey && /^[A-Za-z]$/u.test(key.key)) return undefined;
  const letter = key.key.toLowerCase();
  if (letter === "v") return undefined;
  if (letter >= "a" && letter <= "z") return alt + String.fromCharCode(letter.charCodeAt(0) - 96);
  const control = CONTROLS[key.key];
  return control === undefined ? undefined : alt + control;
}

/** What pasted text is sent as: ends of line as Enter, and set in brackets if the program asked for
 * it; an end bracket within would let the rest be taken for typing. */
export function pasteData(text: string, bracketed: boolean): string {
  const lines = text.replaceAll("\r\n", "\r").replaceAll("\n", "\r");
  return bracketed ? `${ESC}[200~${lines.replaceAll(ESC, "␛")}${ESC}[201~` : lines;
}
