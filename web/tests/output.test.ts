import { describe, expect, it } from "vitest";
import { Assembly, excerpt, type Piece } from "../src/model/output";
import { inOrder } from "../src/state/outputs";
import type { ExecExited, ExecGap, ExecOutput } from "../src/protocol";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

function out(at: number, data: string, stream = "stdout", pos = at): ExecOutput {
  return { type: "exec.output", exec: "x", stream, at, size: bytes(data).length, pos, data };
}
function raw(at: number, data: Uint8Array): ExecOutput {
  return { type: "exec.output", exec: "x", stream: "stdout", at, size: data.length, pos: at, base64: btoa(String.fromCharCode(...data)) };
}
const gap = (from: number, to: number, kept = true, stream = "stdout"): ExecGap => ({ type: "exec.gap", exec: "x", stream, from, to, kept });
const textOf = (pieces: Piece[]): string => pieces.map((piece) => (piece.kind === "text" ? piece.text : `[${piece.bytes}]`)).join("");

describe("Assembly", () => {
  it("puts streams together in the order they come", () => {
    const assembly = new Assembly();
    const pieces = [...assembly.output(out(0, "a\n")), ...assembly.output(out(0, "err\n", "stderr")), ...assembly.output(out(2, "b\n"))];
    expect(textOf(pieces)).toBe("a\nerr\nb\n");
    expect(assembly.nextOf("stdout")).toBe(4);
    expect(assembly.nextOf("stderr")).toBe(4);
  });

  it("skips what it has, whole or in part", () => {
    const assembly = new Assembly();
    assembly.output(out(0, "hello"));
    expect(assembly.output(out(0, "hello"))).toEqual([]);
    expect(textOf(assembly.output(out(3, "lo world")))).toBe(" world");
  });

  it("cuts overlap by bytes, not characters", () => {
    const assembly = new Assembly();
    assembly.output(out(0, "äö"));
    expect(textOf(assembly.output(out(2, "öü")))).toBe("ü");
  });

  it("names a hole and what the server says it did not send", () => {
    const assembly = new Assembly();
    expect(textOf(assembly.output(out(10, "x")))).toBe("[10]x");
    expect(textOf(assembly.gap(gap(11, 111, false)))).toBe("[100]");
    expect(assembly.gap(gap(11, 50))).toEqual([]);
    expect(assembly.missing).toBe(110);
    expect(textOf(assembly.output(out(111, "y")))).toBe("y");
  });

  it("joins a character that came in two frames", () => {
    const assembly = new Assembly();
    const smile = bytes("😀");
    const first = assembly.output(raw(0, smile.subarray(0, 2)));
    const second = assembly.output(raw(2, smile.subarray(2)));
    expect(textOf([...first, ...second])).toBe("😀");
  });

  it("shows an unfinished character at the end, and what never arrived as a gap", () => {
    const assembly = new Assembly();
    assembly.output(raw(0, bytes("é").subarray(0, 1)));
    expect(textOf(assembly.finish({ stdout: 1, stderr: 0 }))).toBe("\ufffd");
    expect(textOf(new Assembly().finish({ stdout: 7 }))).toBe("[7]");
  });

  it("gives the same text however the bytes were cut and repeated", () => {
    const text = "zeile ä 1\nline 2 😀\n\u4e16\u754c end\n";
    const all = bytes(text);
    let seed = 7;
    const dice = (n: number): number => (seed = (seed * 48271) % 2147483647) % n;
    for (let round = 0; round < 300; round += 1) {
      const assembly = new Assembly();
      let shown = "";
      let have = 0;
      while (have < all.length) {
        const at = Math.max(0, have - dice(6));
        const end = Math.min(all.length, Math.max(at, have) + 1 + dice(9));
        shown += textOf(assembly.output(raw(at, all.subarray(at, end))));
        have = Math.max(have, end);
      }
      shown += textOf(assembly.finish({ stdout: all.length }));
      expect(shown).toBe(text);
      expect(assembly.missing).toBe(0);
    }
  });
});

describe("inOrder", () => {
  it("orders frames of several streams by pos, a gap after its stream's bytes", () => {
    const frames = [out(0, "a", "stdout", 0), gap(1, 3), out(3, "d", "stdout", 5), out(0, "e", "stderr", 1), out(1, "f", "stderr", 4)];
    const order = inOrder(frames).map((frame) => (frame.type === "exec.gap" ? "gap" : frame.data));
    expect(order).toEqual(["a", "gap", "e", "f", "d"]);
  });
});

describe("inOrder with positions that each stream counts by itself", () => {
  it("keeps the streams one after the other", () => {
    const frames = [out(0, "a\n"), out(2, "b\n"), out(0, "x\n", "stderr"), out(2, "y\n", "stderr")];
    expect(inOrder(frames).map((frame) => (frame as ExecOutput).data)).toEqual(["a\n", "b\n", "x\n", "y\n"]);
  });
});

describe("excerpt", () => {
  const end = (stdout: string, bytes: number, truncated: boolean): ExecExited => ({
    room: "r", offset: 1, ts: 1, by: { id: "p", name: "P", kind: "human" }, type: "exec.exited", exec: "x",
    ok: true, durationMs: 1, stdout, bytes: { stdout: bytes }, truncated: { stdout: truncated },
  });
  it("is the whole when nothing was cut", () => {
    expect(excerpt(end("all\n", 4, false), "stdout")).toEqual({ head: "all\n", missing: 0, tail: "" });
    expect(excerpt(end("all\n", 4, false), "stderr")).toEqual({ head: "", missing: 0, tail: "" });
  });
  it("splits where the beginning ends, between characters", () => {
    const head = "a".repeat(1023);
    const parts = excerpt(end(`${head}ä${"b".repeat(3000)}`, 10_000, true), "stdout");
    expect(parts.head).toBe(head);
    expect(parts.tail.startsWith("äb")).toBe(true);
    expect(parts.missing).toBe(10_000 - 4025);
  });
});
