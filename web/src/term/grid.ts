/** A terminal's screen: xterm.js's parser and buffer without its renderer, its rows as runs of
 * equal style. How it is drawn and typed into is not known here. */
import { Terminal, type IBuffer } from "@xterm/headless";
import { runsOf, type Line } from "./cells";

/** Lines one can scroll back to. */
const SCROLLBACK_ROWS = 2000;
/** Characters of a title that a program may set. */
const TITLE_CHARS = 80;
export const MIN_COLS = 10;
export const MIN_ROWS = 3;
export const MAX_COLS = 400;
export const MAX_ROWS = 150;

/** A few bytes that ask for a million repeats, scrolls or inserted lines would hold the page for
 * seconds; past the screen's own size they show nothing anyway. */
export function bound(term: Terminal, most: number): void {
  for (const final of ["S", "T", "L", "M", "b", "@", "P", "I", "Z"])
    term.parser.registerCsiHandler({ final }, ([count]) => typeof count === "number" && count > most);
}

export class Grid {
  readonly #term: Terminal;
  #cursorShown = true;
  #title = "";

  constructor(cols: number, rows: number) {
    this.#term = new Terminal({ cols, rows, scrollback: SCROLLBACK_ROWS, allowProposedApi: true, logLevel: "off" });
    bound(this.#term, MAX_COLS);
    const cursor = (shown: boolean) => (params: (number | number[])[]): boolean => {
      if (params.includes(25)) this.#cursorShown = shown;
      return false;
    };
    this.#term.parser.registerCsiHandler({ prefix: "?", final: "h" }, cursor(true));
    this.#term.parser.registerCsiHandler({ prefix: "?", final: "l" }, cursor(false));
    this.#term.onTitleChange((title) => (this.#title = [...title].slice(0, TITLE_CHARS).join("")));
  }

  write(text: string, done: () => void): void {
    this.#term.write(text, done);
  }

  resize(cols: number, rows: number): void {
    this.#term.resize(cols, rows);
  }

  get cols(): number {
    return this.#term.cols;
  }
  get rows(): number {
    return this.#term.rows;
  }
  get title(): string {
    return this.#title;
  }
  get modes() {
    return this.#term.modes;
  }
  /** Whether a program has the whole screen, as editors do: then nothing can be scrolled back to. */
  get full(): boolean {
    return this.#buffer.type === "alternate";
  }
  /** Lines above the screen. */
  get above(): number {
    return this.#buffer.baseY;
  }
  /** Column and row of the cursor; undefined while it is hidden. */
  get cursor(): { x: number; y: number } | undefined {
    return this.#cursorShown ? { x: Math.min(this.#buffer.cursorX, this.cols - 1), y: this.#buffer.cursorY } : undefined;
  }
  get #buffer(): IBuffer {
    return this.#term.buffer.active;
  }

  /** The screen's rows, `back` lines further up. */
  lines(back: number): Line[] {
    const buffer = this.#buffer;
    const scratch = buffer.getNullCell();
    const first = Math.max(0, buffer.baseY - back);
    return Array.from({ length: this.rows }, (_, y) => {
      const line = buffer.getLine(first + y);
      const runs = line ? runsOf(line, scratch, true) : [];
      const last = runs.at(-1);
      // Blanks without a colour are nothing to copy.
      if (last && !last.cls && !last.bg) last.text = last.text.trimEnd();
      if (last?.text === "") runs.pop();
      return { id: y, runs };
    });
  }

  dispose(): void {
    this.#term.dispose();
  }
}
