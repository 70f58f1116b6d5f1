import { describe, expect, it } from "vitest";
import { paletteColour, textOf } from "../src/term/cells";
import { needsTerminal } from "../src/term/plain";
import { HEAD_ROWS, MAX_CHARS, MAX_ROWS, type Row } from "../src/term/kept";
import { LINE_CHARS, parts, Screen } from "../src/term/screen";

const show = (row: Row): string => ("runs" in row ? textOf(row) : "gap" in row ? `[${row.gap.bytes}]` : `{${row.dropped}}`);

async function shown(...writes: string[]): Promise<string[]> {
  const screen = new Screen(() => undefined);
  for (const text of writes) screen.write(text);
  await screen.end();
  return screen.settled.map(show);
}

describe("Screen", () => {
  it("shows lines as printed", async () => {
    expect(await shown("one\ntwo\n\nfo", "ur\n")).toEqual(["one", "two", "", "four"]);
  });
  it("obeys carriage returns and erasures, as progress bars need", async () => {
    expect(await shown("10%\r50%\r100%\ndone\n")).toEqual(["100%", "done"]);
    expect(await shown("long line\r\u001b[Kshort\n")).toEqual(["short"]);
    expect(await shown("a\nb\n\u001b[1A\u001b[2Kc\n")).toEqual(["a", "c"]);
  });
  it("keeps a long line one line", async () => {
    const long = "x".repeat(5000);
    expect(await shown(`${long}\nnext\n`)).toEqual([long, "next"]);
  });
  it("loses no line of a flood below its bound", async () => {
    const lines = Array.from({ length: 5000 }, (_, i) => `line ${i}`);
    expect(await shown(`${lines.join("\n")}\n`)).toEqual(lines);
  });
  it("keeps the first and the newest of what is beyond it, and says how many are between", async () => {
    const total = MAX_ROWS + 3500;
    const rows = await shown(Array.from({ length: total }, (_, i) => `${i}\n`).join(""));
    expect(rows.length).toBeLessThanOrEqual(MAX_ROWS);
    expect(rows.slice(0, HEAD_ROWS)).toEqual(Array.from({ length: HEAD_ROWS }, (_, i) => `${i}`));
    expect(rows.at(-1)).toBe(`${total - 1}`);
    const dropped = Number(/\{(\d+)\}/u.exec(rows[HEAD_ROWS]!)![1]);
    expect(rows.length - 1 + dropped).toBe(total);
  });
  it("keeps colours as classes and true colours as values", async () => {
    const screen = new Screen(() => undefined);
    screen.write("\u001b[31mred\u001b[0m plain \u001b[1;38;2;1;2;3mtrue\u001b[0m\n");
    await screen.end();
    const row = screen.settled[0]!;
    expect("runs" in row && row.runs).toEqual([
      { text: "red", cls: "f1" },
      { text: " plain ", cls: "" },
      { text: "true", cls: "tb", fg: "#010203" },
    ]);
  });
  it("places gaps between what was before and after", async () => {
    const screen = new Screen(() => undefined);
    screen.write("before\nhalf");
    screen.gap({ stream: "stdout", bytes: 12, kept: true });
    screen.write("after\n");
    await screen.end();
    expect(screen.settled.map(show)).toEqual(["before", "half", "[12]", "after"]);
  });
  it("survives sequences that are meant to harm", async () => {
    await expect(shown("\u001b[999999S\u001b[9999999999m\u001b]0;title\u0007\u001b[?1049hx\u001b[?1049ly\n")).resolves.toBeDefined();
  });
});

describe("a screen that turns from plain to terminal", () => {
  it("lets a program redraw lines that were plain", async () => {
    expect(await shown("one\ntwo\nthree\n", "\u001b[2A\u001b[2Kzwei\n")).toEqual(["one", "zwei", "three"]);
  });
  it("shows the same however the text was cut", async () => {
    const text = "plain\n\tindented\r\nwait 1%\rwait 99%\n\u001b[31mred\u001b[0m\nend";
    const whole = (await shown(text)).map((line) => line.trimEnd());
    for (let cut = 1; cut < text.length; cut += 1) {
      const again = await shown(text.slice(0, cut), text.slice(cut));
      expect(again.map((line) => line.replaceAll("\t", " ".repeat(8)).trimEnd())).toEqual(whole);
    }
  });
  it("shows an unfinished line while it waits for its rest", () => {
    const screen = new Screen(() => undefined);
    screen.write("one\nPassw");
    expect(screen.live.map(show)).toEqual(["one", "Passw"]);
  });
});

describe("bounds", () => {
  it("cut an endless line into rows and keep no more characters than allowed", async () => {
    const screen = new Screen(() => undefined);
    for (let i = 0; i < 40; i += 1) screen.write("x".repeat(500_000));
    await screen.end();
    const kept = screen.settled.map(show);
    expect(Math.max(...kept.map((line) => line.length))).toBeLessThanOrEqual(LINE_CHARS);
    expect(kept.join("").length).toBeLessThanOrEqual(MAX_CHARS + LINE_CHARS);
    expect(kept.some((line) => line.startsWith("{"))).toBe(true);
  });
  it("leave out what floods in faster than a terminal can take it", async () => {
    const screen = new Screen(() => undefined);
    const line = `${"x".repeat(999)}\n`;
    for (let i = 0; i < 90; i += 1) screen.write(`\u001b[3${i % 8}m${line.repeat(100)}`);
    screen.write("the end\n");
    await screen.end();
    const kept = screen.settled.map(show);
    expect(kept.at(-1)).toBe("the end");
    expect(kept.some((line) => line.startsWith("["))).toBe(true);
  });
});

describe("parts", () => {
  it("adds up to the text, none with too many lines", () => {
    const text = "a\n".repeat(3000) + "b".repeat(200_000);
    const all = [...parts(text)];
    expect(all.join("")).toBe(text);
    for (const part of all) {
      expect(part.split("\n").length).toBeLessThanOrEqual(501);
      expect(part.length).toBeLessThanOrEqual(64_001);
    }
  });
});

describe("plain output", () => {
  it("is told from output that needs a terminal", () => {
    expect(needsTerminal("a\tb\r\nc\n")).toBe(false);
    expect(needsTerminal("a\rb")).toBe(true);
    expect(needsTerminal("\u001b[1mb")).toBe(true);
  });
});

describe("paletteColour", () => {
  it("follows the cube and the greys", () => {
    expect(paletteColour(16)).toBe("rgb(0,0,0)");
    expect(paletteColour(196)).toBe("rgb(255,0,0)");
    expect(paletteColour(255)).toBe("rgb(238,238,238)");
  });
});
