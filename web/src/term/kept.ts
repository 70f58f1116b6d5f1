/** The rows of an output that can't change any more, bounded: the first ones stay, the newest stay,
 * and of what is dropped between them the number of lines is told. Pure. */
import type { Line } from "./cells";

export interface GapRow {
  readonly id: number;
  readonly gap: { stream: string; bytes: number; kept: boolean };
}
export interface DroppedRow {
  readonly id: number;
  /** Lines, and bytes of gaps among them. */
  readonly dropped: number;
  readonly bytes: number;
}
export type Row = Line | GapRow | DroppedRow;

/** Rows kept of one output, the first of them for good. More than a person reads in a card. */
export const MAX_ROWS = 10_000;
export const HEAD_ROWS = 500;
/** Characters kept of one output; in memory about a byte each. */
export const MAX_CHARS = 16_000_000;

export class Kept {
  readonly rows: Row[] = [];
  #chars = 0;
  #dropped = 0;
  #bytes = 0;

  constructor(private readonly newId: () => number) {}

  push(row: Row): void {
    this.rows.push(row);
    this.#chars += charsOf(row);
    while (this.rows.length > MAX_ROWS || (this.#chars > MAX_CHARS && this.rows.length > HEAD_ROWS + 2)) this.#drop();
  }

  /** A tenth at a time: cutting an array at each row would cost its whole length. */
  #drop(): void {
    const first = Math.min(HEAD_ROWS, Math.floor(this.rows.length / 2));
    const many = Math.max(2, Math.floor((this.rows.length - first) / 10));
    const gone = this.rows.slice(first, first + many);
    for (const row of gone) {
      this.#chars -= charsOf(row);
      if ("gap" in row) this.#bytes += row.gap.bytes;
      else if ("runs" in row) this.#dropped += 1;
    }
    this.rows.splice(first, many, { id: this.newId(), dropped: this.#dropped, bytes: this.#bytes });
  }
}

function charsOf(row: Row): number {
  return "runs" in row ? row.runs.reduce((sum, run) => sum + run.text.length, 0) : 0;
}
