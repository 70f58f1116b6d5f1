/** The terminals of a room that are open: their bytes in order, what is typed into them. */
import { signal } from "@preact/signals";
import { Assembly } from "../model/output";
import { LOST, RequestError } from "../net/connection";
import type { ExecGap, ExecOutput, PtySize } from "../protocol";
import { Grid } from "../term/grid";
import { TerminalInput } from "../term/input";
import { redraw } from "./redraw";
import { tell } from "./ui";

/** Requests that a terminal makes. They reject with words for a person. */
export interface TerminalRequests {
  input(exec: string, data: string): Promise<unknown>;
  resize(exec: string, size: PtySize): Promise<unknown>;
}

/** Typing is not kept for later: by then the screen may ask something else. */
function lost(error: unknown): void {
  tell(error instanceof RequestError && error.code === LOST ? new Error("Not connected: what you typed was not sent.") : error);
}

export class SharedTerminal {
  readonly version = signal(0);
  readonly grid: Grid;
  readonly input: TerminalInput;
  /** Whether anything was printed: its program runs. */
  readonly alive = signal(false);
  #changed = redraw(this.version, 16);
  #assembly = new Assembly();
  #asked: PtySize;

  constructor(
    readonly exec: string,
    size: PtySize,
    private readonly requests: TerminalRequests,
  ) {
    this.grid = new Grid(size.cols, size.rows);
    this.#asked = size;
    this.input = new TerminalInput((data) => requests.input(exec, data), lost);
  }

  feed(frame: ExecOutput | ExecGap): void {
    const pieces = frame.type === "exec.output" ? this.#assembly.output(frame) : this.#assembly.gap(frame);
    for (const piece of pieces) {
      // Bytes that are missing leave an unknown state: begin anew, the program redraws.
      this.grid.write(piece.kind === "text" ? piece.text : "\x1bc", this.#changed);
    }
    if (pieces.length > 0) this.begins();
  }

  /** The program is there: what was typed so far may go. */
  begins(): void {
    if (this.alive.value) return;
    this.alive.value = true;
    this.input.ready();
  }

  /** The opener's window changed. */
  resize(cols: number, rows: number): void {
    if (cols === this.#asked.cols && rows === this.#asked.rows) return;
    this.#asked = { cols, rows };
    this.shows(cols, rows);
    this.requests.resize(this.exec, { cols, rows }).catch(tell);
  }

  /** The size that the program was given, whoever gave it. */
  shows(cols: number, rows: number): void {
    this.grid.resize(cols, rows);
    this.#changed();
  }
}
