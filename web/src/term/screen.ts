/** A command's output as rows. Text without control sequences is split into lines; from the first
 * sequence on, xterm.js's parser and buffer do it, without its renderer. Rows that can't change any
 * more are taken out, so the cost does not grow with the output, the page stays selectable and
 * searchable, and no style is injected. */
import { Terminal, type IBuffer, type IMarker } from "@xterm/headless";
import { runsOf, type Line, type Run } from "./cells";
import { bound } from "./grid";
import { Kept, type GapRow, type Row } from "./kept";
import { needsTerminal } from "./plain";

/** Columns. A pipe has no width; lines that wrap here are joined again. */
const COLS = 160;
/** Rows that a program may still move back to and redraw. */
const ROWS = 40;
/** Rows kept beyond the screen between two harvests; one write must stay below it. */
const SCROLLBACK_ROWS = 1200;
/** Bounds one write so that no row is pushed out unharvested: ends of line, and characters. */
const WRITE_NEWLINES = 500;
const WRITE_CHARS = 64_000;
/** A plain line longer than this, in characters, goes on in the next row. */
export const LINE_CHARS = 16_384;
/** Characters that may wait for the terminal. What floods in faster than it can be drawn is left out. */
const QUEUE_CHARS = 4_000_000;

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

type Work = { text: string } | { gap: GapRow["gap"] } | { fresh: true } | { done: () => void };

export class Screen {
  #ids = 0;
  #kept = new Kept(() => (this.#ids += 1));
  /** Plain mode: the last lines, the unfinished one at the end. Undefined once a terminal is needed. */
  #plain: string[] | undefined = [""];
  #term: Terminal | undefined;
  #mark: IMarker | undefined;
  #queue: Work[] = [];
  #queued = 0;
  #busy = false;
  #ended = false;
  #live: readonly Row[] = [];

  /** `changed` is called after rows changed, possibly many times a frame. */
  constructor(private readonly changed: () => void) {}

  /** Rows that can't change any more. */
  get settled(): readonly Row[] {
    return this.#kept.rows;
  }

  /** Rows that a program may still redraw. */
  get live(): readonly Row[] {
    return this.#plain ? plainRows(this.#plain) : this.#live;
  }

  write(text: string): void {
    if (this.#ended || !text) return;
    if (this.#queued > QUEUE_CHARS) this.#leaveOut();
    this.#queued += text.length;
    this.#push({ text });
  }

  /** What comes next begins a line, even if the line before it was not finished. */
  freshLine(): void {
    this.#push({ fresh: true });
  }

  gap(gap: GapRow["gap"]): void {
    this.#push({ gap });
  }

  /** Everything written so far is settled, and the terminal's memory is given back. */
  end(): Promise<void> {
    return new Promise((resolve) =>
      this.#push({
        done: () => {
          this.#settleAll();
          this.#ended = true;
          this.#term?.dispose();
          this.#term = undefined;
          this.changed();
          resolve();
        },
      }),
    );
  }

  /** The reader is behind: what waits becomes a gap that can be loaded later. */
  #leaveOut(): void {
    const bytes = this.#queue.reduce((sum, work) => sum + ("text" in work ? new TextEncoder().encode(work.text).length : 0), 0);
    this.#queue = this.#queue.filter((work) => !("text" in work));
    this.#queue.push({ gap: { stream: "", bytes, kept: true } });
    this.#queued = 0;
  }

  #push(work: Work): void {
    this.#queue.push(work);
    if (!this.#busy) this.#next();
  }

  #next(): void {
    for (;;) {
      const work = this.#queue.shift();
      this.#busy = work !== undefined;
      if (!work) return;
      if ("done" in work) work.done();
      else if ("gap" in work) this.#gap(work.gap);
      else if ("fresh" in work) this.#settleAll();
      else if (!this.#text(work.text)) return;
    }
  }

  #gap(gap: GapRow["gap"]): void {
    this.#settleAll();
    this.#kept.push({ id: (this.#ids += 1), gap });
    this.changed();
  }

  /** True if it is done at once; otherwise it goes on with the queue by itself. */
  #text(text: string): boolean {
    this.#queued = Math.max(0, this.#queued - text.length);
    if (!this.#plain || needsTerminal(text)) {
      const before = this.#plain?.join("\n") ?? "";
      this.#plain = undefined;
      this.#throughTerminal([...parts(before), ...parts(text)]);
      return false;
    }
    this.#addPlain(this.#plain, text);
    this.changed();
    return true;
  }

  #addPlain(plain: string[], text: string): void {
    const lines = text.replaceAll("\r\n", "\n").split("\n");
    lines[0] = plain.pop()! + lines[0]!;
    for (const line of lines) {
      let rest = line;
      for (; rest.length > LINE_CHARS; rest = rest.slice(LINE_CHARS)) plain.push(rest.slice(0, LINE_CHARS));
      plain.push(rest);
    }
    for (const line of plain.splice(0, Math.max(0, plain.length - ROWS))) this.#settle(line);
  }

  #settle(line: string): void {
    this.#kept.push({ id: (this.#ids += 1), runs: line ? [{ text: line, cls: "" }] : [] });
  }

  #throughTerminal(todo: string[]): void {
    const term = (this.#term ??= newTerminal());
    const part = todo.shift();
    if (part === undefined) return this.#next();
    term.write(part, () => {
      this.#harvest(term);
      this.changed();
      this.#throughTerminal(todo);
    });
  }

  #harvest(term: Terminal): void {
    const buffer = term.buffer.normal;
    const from = this.#mark && this.#mark.line >= 0 ? this.#mark.line : 0;
    const to = settledUntil(buffer, from);
    for (const line of this.#lines(buffer, from, to)) this.#kept.push(line);
    this.#mark?.dispose();
    this.#mark = term.registerMarker(to - buffer.baseY - buffer.cursorY);
    const active = term.buffer.active;
    this.#live = this.#lines(active, active === buffer ? to : active.baseY, lastRow(active));
  }

  #settleAll(): void {
    if (this.#plain) {
      const last = this.#plain.pop();
      for (const line of this.#plain) this.#settle(line);
      if (last) this.#settle(last);
    } else if (this.#term) {
      this.#harvest(this.#term);
      for (const line of this.#live) this.#kept.push(line);
      this.#term.reset();
      this.#mark?.dispose();
      this.#mark = undefined;
    }
    this.#live = [];
    this.#plain = [""];
  }

  /** Rows `from` to `to` (exclusive) as logical lines. */
  #lines(buffer: IBuffer, from: number, to: number): Line[] {
    const scratch = buffer.getNullCell();
    const lines: Line[] = [];
    let open: Run[] | undefined;
    for (let y = from; y < to; y += 1) {
      const row = buffer.getLine(y);
      if (!row) continue;
      const goesOn = buffer.getLine(y + 1)?.isWrapped === true;
      const runs = runsOf(row, scratch, goesOn);
      if (row.isWrapped && open) open.push(...runs);
      else lines.push({ id: (this.#ids += 1), runs: (open = runs) });
    }
    return lines;
  }
}

function plainRows(plain: readonly string[]): Row[] {
  const lines = plain.at(-1) === "" ? plain.slice(0, -1) : plain;
  return lines.map((text, id) => ({ id, runs: text ? [{ text, cls: "" }] : [] }));
}

function newTerminal(): Terminal {
  const term = new Terminal({ cols: COLS, rows: ROWS, scrollback: SCROLLBACK_ROWS, convertEol: true, allowProposedApi: true, logLevel: "off" });
  bound(term, COLS);
  return term;
}

/** The first row that can still change: the screen's first, or the start of the line it belongs to,
 * so that no line is cut in two (unless it alone fills half the scrollback). */
function settledUntil(buffer: IBuffer, from: number): number {
  let to = buffer.baseY;
  while (to > from && buffer.getLine(to)?.isWrapped) to -= 1;
  return buffer.baseY - to > SCROLLBACK_ROWS / 2 ? buffer.baseY : to;
}

/** One past the last row that shows something; rows below the cursor count, too. */
function lastRow(buffer: IBuffer): number {
  for (let y = buffer.length - 1; y >= buffer.baseY; y -= 1) if (buffer.getLine(y)?.translateToString(true)) return y + 1;
  return buffer.baseY;
}
