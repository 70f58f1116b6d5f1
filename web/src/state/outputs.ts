/** The output of each command on the page: frames in, rows for the view out. */
import { signal } from "@preact/signals";
import { Assembly, excerpt, type Piece } from "../model/output";
import type { ExecExited, ExecGap, ExecOutput } from "../protocol";
import type { Row } from "../term/kept";
import { Screen } from "../term/screen";
import { redraw } from "./redraw";

/** How a stored range of output is fetched: frames in the order they came. */
export type Reader = (exec: string, streams: readonly string[]) => Promise<(ExecOutput | ExecGap)[]>;

/** Drawings of one output are at least this far apart: the first after a pause comes with the next
 * frame, a flood costs no more than this often. */
const REDRAW_EVERY_MS = 60;

export class CommandOutput {
  readonly version = signal(0);
  readonly loading = signal(false);
  readonly problem = signal<string | undefined>(undefined);
  #changed = redraw(this.version, REDRAW_EVERY_MS);
  #assembly = new Assembly();
  #screen: Screen | undefined;
  #backlog: (ExecOutput | ExecGap)[] | undefined;
  #end: ExecExited | undefined;
  /** Whether frames were received, live or read back; otherwise an end's tails are all there is. */
  fed = false;

  constructor(readonly exec: string) {}

  feed(frame: ExecOutput | ExecGap): void {
    this.#backlog?.push(frame);
    this.fed = true;
    this.#take(frame.type === "exec.output" ? this.#assembly.output(frame) : this.#assembly.gap(frame));
  }

  /** The command ended. What never arrived becomes a gap that can be loaded. */
  exited(end: ExecExited): void {
    if (this.#end) return;
    this.#end = end;
    if (!this.fed) return this.#showTails(end);
    this.#take(this.#assembly.finish(end.bytes ?? {}));
    void this.#screen?.end();
  }

  /** Settled rows and those of the screen that may still change. */
  rows(): { settled: readonly Row[]; live: readonly Row[] } {
    void this.version.value;
    return { settled: this.#screen?.settled ?? [], live: this.#screen?.live ?? [] };
  }

  get ended(): boolean {
    return this.#end !== undefined;
  }

  /** Whether some of it is on the server but not here. */
  get partial(): boolean {
    if (this.fed) return this.#assembly.missing > 0;
    return Object.values(this.#end?.truncated ?? {}).some(Boolean);
  }

  /** Reads everything that is kept and shows it in place of what stood here. */
  async loadAll(reader: Reader): Promise<void> {
    if (this.loading.value) return;
    this.loading.value = true;
    this.problem.value = undefined;
    this.#backlog = [];
    try {
      const frames = await reader(this.exec, Object.keys(this.#end?.bytes ?? { stdout: 0, stderr: 0 }));
      this.#replace([...frames, ...this.#backlog]);
    } catch (error) {
      this.problem.value = (error as Error).message;
    } finally {
      this.#backlog = undefined;
      this.loading.value = false;
    }
  }

  #replace(frames: readonly (ExecOutput | ExecGap)[]): void {
    const screen = new Screen(this.#changed);
    this.#assembly = new Assembly();
    this.#screen = screen;
    this.fed = true;
    for (const frame of frames)
      this.#take(frame.type === "exec.output" ? this.#assembly.output(frame) : this.#assembly.gap(frame));
    if (!this.#end) return;
    this.#take(this.#assembly.finish(this.#end.bytes ?? {}));
    void screen.end();
  }

  #take(pieces: readonly Piece[]): void {
    if (pieces.length === 0) return;
    this.#screen ??= new Screen(this.#changed);
    for (const piece of pieces) {
      if (piece.kind === "text") this.#screen.write(piece.text);
      else this.#screen.gap({ stream: piece.stream, bytes: piece.bytes, kept: piece.kept });
    }
  }

  #showTails(end: ExecExited): void {
    const screen = new Screen(this.#changed);
    this.#screen = screen;
    for (const stream of ["stdout", "stderr"] as const) {
      const { head, missing, tail } = excerpt(end, stream);
      screen.write(head);
      if (missing > 0) screen.gap({ stream, bytes: missing, kept: true });
      screen.write(tail);
      if (stream === "stdout" && end.stderr) screen.freshLine();
    }
    void screen.end();
  }
}

/** Commands whose output stays in memory; beyond it an ended one is forgotten and shown by its excerpt. */
const KEPT_OUTPUTS = 400;

export class Outputs {
  #all = new Map<string, CommandOutput>();

  of(exec: string): CommandOutput {
    let output = this.#all.get(exec);
    if (output) return output;
    this.#all.set(exec, (output = new CommandOutput(exec)));
    if (this.#all.size > KEPT_OUTPUTS) this.#forgetOne();
    return output;
  }

  #forgetOne(): void {
    for (const [exec, output] of this.#all) if (output.ended) return void this.#all.delete(exec);
  }

  has(exec: string): boolean {
    return this.#all.has(exec);
  }

  feed(frame: ExecOutput | ExecGap): void {
    this.of(frame.exec).feed(frame);
  }
}

/** Frames of several streams in the order they were printed. A gap has no `pos`; it stands where
 * its stream's bytes before it ended. Where the positions contradict each other (a server that
 * counts each stream by itself), stream after stream is the honest order. */
export function inOrder(frames: readonly (ExecOutput | ExecGap)[]): (ExecOutput | ExecGap)[] {
  const ends = new Map<string, number>();
  const keyed = frames.map((frame, at) => {
    const pos = frame.type === "exec.output" ? frame.pos : (ends.get(frame.stream) ?? 0);
    const end = frame.type === "exec.output" ? frame.pos + frame.size : pos;
    ends.set(frame.stream, end);
    return { frame, pos, end, at };
  });
  const sorted = [...keyed].sort((a, b) => a.pos - b.pos || a.at - b.at);
  const contradictory = sorted.some((one, at) => at > 0 && one.pos < sorted[at - 1]!.end);
  return (contradictory ? keyed : sorted).map(({ frame }) => frame);
}
