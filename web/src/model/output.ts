/** A command's output put together by byte offset: overlap is skipped, holes are named. Pure; what
 * the bytes look like on a screen is not known here. */
import type { ExecExited, ExecGap, ExecOutput } from "../protocol";

export type Piece =
  | { kind: "text"; stream: string; text: string }
  | { kind: "gap"; stream: string; bytes: number; kept: boolean };

interface StreamState {
  next: number;
  decoder: TextDecoder;
}

export function bytesOf(frame: Pick<ExecOutput, "data" | "base64">): Uint8Array {
  if (frame.base64 != null) return Uint8Array.from(atob(frame.base64), (char) => char.charCodeAt(0));
  return typeof frame.data === "object" ? frame.data : new TextEncoder().encode(frame.data ?? "");
}

export class Assembly {
  #streams = new Map<string, StreamState>();
  /** Bytes that were not received and not yet loaded. */
  missing = 0;

  /** The offset up to which a stream is known, gaps included. */
  nextOf(stream: string): number {
    return this.#streams.get(stream)?.next ?? 0;
  }

  output(frame: ExecOutput): Piece[] {
    const state = this.#state(frame.stream);
    const end = frame.at + frame.size;
    if (end <= state.next) return [];
    const pieces: Piece[] = [];
    if (frame.at > state.next) pieces.push(...this.#hole(frame.stream, frame.at, true));
    const bytes = bytesOf(frame).subarray(state.next - frame.at);
    state.next = end;
    const text = state.decoder.decode(bytes, { stream: true });
    if (text) pieces.push({ kind: "text", stream: frame.stream, text });
    return pieces;
  }

  gap(frame: ExecGap): Piece[] {
    return frame.to > this.nextOf(frame.stream) ? this.#hole(frame.stream, frame.to, frame.kept) : [];
  }

  /** The end is known: what was printed but never arrived is a gap, unfinished characters go out. */
  finish(totals: { readonly [stream: string]: number }): Piece[] {
    const pieces: Piece[] = [];
    for (const [stream, total] of Object.entries(totals)) {
      if (total > this.nextOf(stream)) pieces.push(...this.#hole(stream, total, true));
      const text = this.#state(stream).decoder.decode();
      if (text) pieces.push({ kind: "text", stream, text });
    }
    return pieces;
  }

  #hole(stream: string, to: number, kept: boolean): Piece[] {
    const state = this.#state(stream);
    const bytes = to - state.next;
    state.next = to;
    this.missing += bytes;
    // A character cut by the hole ends here, as U+FFFD.
    const rest = state.decoder.decode();
    const gap: Piece = { kind: "gap", stream, bytes, kept };
    return rest ? [{ kind: "text", stream, text: rest }, gap] : [gap];
  }

  #state(stream: string): StreamState {
    let state = this.#streams.get(stream);
    if (!state) this.#streams.set(stream, (state = { next: 0, decoder: new TextDecoder("utf-8", { ignoreBOM: true }) }));
    return state;
  }
}

/** The first bytes of a stream that an end carries when it is not the whole; PROTOCOL's 1 KiB. */
const EXCERPT_HEAD_BYTES = 1024;

/** What an end tells of a stream: all of it as `head`, or its beginning, what is missing, its end. */
export function excerpt(end: ExecExited, stream: "stdout" | "stderr"): { head: string; missing: number; tail: string } {
  const text = end[stream] ?? "";
  const bytes = new TextEncoder().encode(text);
  const missing = end.truncated?.[stream] ? Math.max(1, (end.bytes?.[stream] ?? 0) - bytes.length) : 0;
  if (missing === 0) return { head: text, missing: 0, tail: "" };
  let cut = Math.min(EXCERPT_HEAD_BYTES, bytes.length);
  // Not inside a character: its later bytes begin with the bits 10.
  while (cut > 0 && cut < bytes.length && (bytes[cut]! & 0xc0) === 0x80) cut -= 1;
  const decode = (part: Uint8Array): string => new TextDecoder("utf-8", { ignoreBOM: true }).decode(part);
  return { head: decode(bytes.subarray(0, cut)), missing, tail: decode(bytes.subarray(cut)) };
}
