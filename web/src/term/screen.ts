/** A command's output as lines: xterm.js's parser and buffer without its renderer. What has scrolled
 * off its screen can't change any more and is taken out as compact lines, so a screen's cost does
 * not grow with the output, the page stays selectable and searchable, and no style is injected. */
import { Terminal, type IBuffer, type IMarker } from "@xterm/headless";
import { runsOf, type Line, type Run } from "./cells";

/** Columns. A pipe has no width; lines that wrap here are joined again. */
const COLS = 160;
/** Rows that a program may still move back to and redraw. */
const ROWS = 40;
/** Rows kept beyond the screen between two harvests; one write must stay below it. */
const SCROLLBACK_ROWS = 1200;
/** Bounds one write so that no row is pushed out unharvested: ends of line, and characters. */
const WRITE_NEWLINES = 500;
const WRITE_CHARS = 64_000;
/** Lines kept per command: the first ones, and the newest up to the whole. */
export const HEAD_LINES = 500;
export const MAX_LINES = 10_000;

export interface GapRow {
  readonly id: number;
  readonly gap: { stream: string; bytes: number; kept: boolean };
}
export interface DroppedRow {
  readonly id: number;
  readonly dropped: number;
}
export type Row = Line | GapRow | DroppedRow;

/** Splits text so that no part can push unread rows out of the scrollback. */
export function* parts(text: string): Generator<string> {
  let start = 0;
  let newlines = 0;
  for (let at = 0; at < text.length; at += 1) {
    if (text.charCodeAt(at) === 10) newlines += 1;
    if (newlines >= WRITE_NEWLINES || at - start >= WRITE_CHARS) {
      yield text.slice(start, at + 1);
      start = at + 1;
      newlines = 0;
    }
  }
  if (start < text.length) yield text.slice(start);
}

type Work = { text: string } | { gap: GapRow["gap"] } | { done: () => void };

export class Screen {
  #term = newTerminal();
  #scratch = this.#term.buffer.active.getNullCell();
  #mark: IMarker | undefined;
  #queue: Work[] = [];
  #busy = false;
  #ids = 0;
  /** Rows that can't change any more. Grows at its end; its middle may be dropped. */
  settled: Row[] = [];
  /** Rows of the screen, as of the last harvest. */
  live: readonly Row[] = [];
  droppedLines = 0;
  #ended = false;

  /** `changed` is called after rows changed, possibly many times a frame. */
  constructor(private readonly changed: () => void) {}

  write(text: string): void {
    if (this.#ended || !text) return;
    this.#push({ text });
  }

  gap(gap: GapRow["gap"]): void {
    this.#push({ gap });
  }

  /** Everything written so far is in `settled`, and the terminal's memory is given back. */
  end(): Promise<void> {
    return new Promise((resolve) =>
      this.#push({
        done: () => {
          this.#settleAll();
          this.#ended = true;
          this.#term.dispose();
          this.changed();
          resolve();
        },
      }),
    );
  }

  get count(): number {
    return this.settled.length + this.live.length;
  }

  #push(work: Work): void {
    this.#queue.push(work);
    if (!this.#busy) this.#next();
  }

  #next(): void {
    const work = this.#queue.shift();
    this.#busy = work !== undefined;
    if (!work) return;
    if ("done" in work) {
      work.done();
      return this.#next();
    }
    if ("gap" in work) {
      this.#settleAll();
      this.#settle({ id: (this.#ids += 1), gap: work.gap });
      this.changed();
      return this.#next();
    }
    const todo = [...parts(work.text)];
    const step = (): void => {
      const part = todo.shift();
      if (part === undefined) return this.#next();
      this.#term.write(part, () => {
        this.#harvest();
        this.changed();
        step();
      });
    };
    step();
  }

  #harvest(): void {
    const buffer = this.#term.buffer.normal;
    const from = this.#mark && this.#mark.line >= 0 ? this.#mark.line : 0;
    const to = settledUntil(buffer, from);
    for (const line of this.#lines(buffer, from, to)) this.#settle(line);
    this.#mark?.dispose();
    this.#mark = this.#term.registerMarker(to - buffer.baseY - buffer.cursorY);
    const active = this.#term.buffer.active;
    this.live = this.#lines(active, active === buffer ? to : active.baseY, lastRow(active));
  }

  #settleAll(): void {
    this.#harvest();
    for (const line of this.live) this.#settle(line);
    this.live = [];
    this.#term.reset();
    this.#mark?.dispose();
    this.#mark = undefined;
  }

  /** Rows `from` to `to` (exclusive) as logical lines. */
  #lines(buffer: IBuffer, from: number, to: number): Line[] {
    const lines: Line[] = [];
    let open: Run[] | undefined;
    for (let y = from; y < to; y += 1) {
      const row = buffer.getLine(y);
      if (!row) continue;
      const goesOn = buffer.getLine(y + 1)?.isWrapped === true;
      const runs = runsOf(row, this.#scratch, goesOn);
      if (row.isWrapped && open) open.push(...runs);
      else lines.push({ id: (this.#ids += 1), runs: (open = runs) });
    }
    return lines;
  }

  #settle(row: Row): void {
    this.settled.push(row);
    if (this.settled.length <= MAX_LINES) return;
    // Dropped a thousand at a time: cutting an array at each line would cost its whole length.
    const many = 1000;
    const old = this.settled[HEAD_LINES];
    const before = old && "dropped" in old ? old.dropped - 1 : 0;
    this.droppedLines = before + many;
    this.settled.splice(HEAD_LINES, many, { id: (this.#ids += 1), dropped: this.droppedLines });
  }
}

function newTerminal(): Terminal {
  return new Terminal({ cols: COLS, rows: ROWS, scrollback: SCROLLBACK_ROWS, convertEol: true, allowProposedApi: true });
}

/** The first row that can still change: the screen's first, or the start of the line it belongs to,
 * so that no line is cut in two (unless it alone fills half the scrollback). */
function settledUntil(buffer: IBuffer, from: number): number {
  let to = buffer.baseY;
  while (to > from && buffer.getLine(to)?.isWrapped) to -= 1;
  return buffer.baseY - to > SCROLLBACK_ROWS / 2 ? buffer.baseY : to;
}

/** One past the last row that shows something; the cursor's own row counts only if written to. */
function lastRow(buffer: IBuffer): number {
  for (let y = buffer.baseY + buffer.cursorY; y >= buffer.baseY; y -= 1) {
    if (buffer.getLine(y)?.translateToString(true)) return lowest(buffer, y) + 1;
  }
  return lowest(buffer, buffer.baseY - 1) + 1;
}

/** Rows below the cursor may hold text too, when a program moved up. */
function lowest(buffer: IBuffer, at: number): number {
  let last = at;
  for (let y = at + 1; y < buffer.length; y += 1) if (buffer.getLine(y)?.translateToString(true)) last = y;
  return last;
}
