import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { SharedTerminal } from "../src/state/terminals";
import { textOf } from "../src/term/cells";
import { Grid } from "../src/term/grid";
import { PIECE_CHARS, TerminalInput, WAITING_CHARS } from "../src/term/input";
import { keyData, pasteData, type Key } from "../src/term/keys";
import type { ExecGap, ExecOutput } from "../src/protocol";

const key = (name: string, held: Partial<Key> = {}): Key => ({ key: name, ctrlKey: false, altKey: false, shiftKey: false, metaKey: false, ...held });
const plain = { applicationCursorKeysMode: false };
const ctrl = { ctrlKey: true };

describe("keys", () => {
  it.each<[string, Key, string | undefined]>([
    ["a letter", key("a"), "a"],
    ["a letter of another script", key("漢"), "漢"],
    ["a character outside the BMP", key("🎉"), "🎉"],
    ["Ctrl-C", key("c", ctrl), "\x03"],
    ["Ctrl-C in capitals", key("C", ctrl), "\x03"],
    ["Ctrl-[", key("[", ctrl), "\x1b"],
    ["Ctrl-Space", key(" ", ctrl), "\0"],
    ["Alt-d", key("d", { altKey: true }), "\x1bd"],
    ["AltGr-q", key("@", { altKey: true, ctrlKey: true, altGraph: true }), "@"],
    ["Enter", key("Enter"), "\r"],
    ["Backspace", key("Backspace"), "\x7f"],
    ["Shift-Tab", key("Tab", { shiftKey: true }), "\x1b[Z"],
    ["Escape", key("Escape"), "\x1b"],
    ["Up", key("ArrowUp"), "\x1b[A"],
    ["Ctrl-Right", key("ArrowRight", ctrl), "\x1b[1;5C"],
    ["Home", key("Home"), "\x1b[H"],
    ["Delete", key("Delete"), "\x1b[3~"],
    ["Shift-PageUp", key("PageUp", { shiftKey: true }), "\x1b[5;2~"],
    ["F1", key("F1"), "\x1bOP"],
    ["F5", key("F5"), "\x1b[15~"],
    ["Ctrl-V, which pastes", key("v", ctrl), undefined],
    ["Ctrl-Shift-C, which copies", key("C", { ctrlKey: true, shiftKey: true }), undefined],
    ["the browser's own", key("c", { metaKey: true }), undefined],
    ["Ctrl-Tab, which changes the tab", key("Tab", ctrl), undefined],
    ["a key without a character", key("Shift"), undefined],
  ])("sends %s", (_, pressed, data) => expect(keyData(pressed, plain)).toBe(data));

  it("sends arrows as the program asked for them", () => {
    expect(keyData(key("ArrowUp"), { applicationCursorKeysMode: true })).toBe("\x1bOA");
    expect(keyData(key("ArrowUp", { shiftKey: true }), { applicationCursorKeysMode: true })).toBe("\x1b[1;2A");
  });

  it("pastes lines as Enter, and what is pasted can't end its own brackets", () => {
    expect(pasteData("a\r\nb\nc", false)).toBe("a\rb\rc");
    expect(pasteData("a\x1b[201~b", true)).toBe("\x1b[200~a␛[201~b\x1b[201~");
  });
});

describe("TerminalInput", () => {
  it("sends one piece at a time, in order, and joins what was typed meanwhile", async () => {
    const sent: string[] = [];
    let acknowledge = (): void => undefined;
    const input = new TerminalInput((data) => (sent.push(data), new Promise<void>((resolve) => (acknowledge = resolve))), () => expect.fail());
    input.type("held");
    expect(sent).toEqual([]);
    input.ready();
    input.type("b");
    input.type("c");
    expect(sent).toEqual(["held"]);
    acknowledge();
    await vi.waitFor(() => expect(sent).toEqual(["held", "bc"]));
    expect(input.waiting).toBe(0);
  });

  it("cuts a paste into pieces between characters", async () => {
    const sent: string[] = [];
    const input = new TerminalInput(async (data) => void sent.push(data), () => expect.fail());
    input.ready();
    const text = `a${"😀".repeat(50_000)}`;
    input.type(text);
    await vi.waitFor(() => expect(sent.join("")).toBe(text));
    expect(sent.every((piece) => piece.length <= PIECE_CHARS && new TextDecoder().decode(new TextEncoder().encode(piece)) === piece)).toBe(true);
  });

  it("drops what follows a failure and says so; what comes later is sent again", async () => {
    const failures: unknown[] = [];
    let fail = true;
    const sent: string[] = [];
    const input = new TerminalInput(async (data) => (fail ? Promise.reject(new Error("gone")) : void sent.push(data)), (error) => failures.push(error));
    input.ready();
    input.type("a".repeat(2 * PIECE_CHARS));
    await vi.waitFor(() => expect(failures).toHaveLength(1));
    expect(input.waiting).toBe(0);
    fail = false;
    input.type("b");
    await vi.waitFor(() => expect(sent).toEqual(["b"]));
    input.type("c".repeat(WAITING_CHARS + 1));
    expect(failures).toHaveLength(2);
  });
});

describe("Grid", () => {
  const written = (grid: Grid, text: string): Promise<void> => new Promise((resolve) => grid.write(text, resolve));
  const texts = (grid: Grid, back = 0): string[] => grid.lines(back).map(textOf);

  it("is a screen with a cursor, and lines above it", async () => {
    const grid = new Grid(10, 3);
    await written(grid, "one\r\ntwo\r\nthree\r\n\x1b[31mfour");
    expect(texts(grid)).toEqual(["two", "three", "four"]);
    expect(grid.lines(0)[2]!.runs).toEqual([{ text: "four", cls: "f1" }]);
    expect(grid.cursor).toEqual({ x: 4, y: 2 });
    expect(grid.above).toBe(1);
    expect(texts(grid, 1)).toEqual(["one", "two", "three"]);
    await written(grid, "\x1b[?25l");
    expect(grid.cursor).toBeUndefined();
  });

  it("keeps coloured blanks, which are bars, and drops the others", async () => {
    const grid = new Grid(6, 1);
    await written(grid, "a\x1b[44m  \x1b[0m");
    expect(grid.lines(0)[0]!.runs).toEqual([{ text: "a", cls: "" }, { text: "  ", cls: "b4" }]);
  });

  it("tells when a program has the whole screen, its modes and its title, cut", async () => {
    const grid = new Grid(10, 3);
    await written(grid, `\x1b[?1049h\x1b[?1h\x1b[?2004h\x1b]0;${"t".repeat(500)}\x07`);
    expect(grid.full).toBe(true);
    expect(grid.modes).toMatchObject({ applicationCursorKeysMode: true, bracketedPasteMode: true });
    expect(grid.title).toHaveLength(80);
  });

  it("is not held up by a few bytes that ask for a million repeats", async () => {
    const grid = new Grid(10, 3);
    const before = performance.now();
    await written(grid, "a\x1b[2000000000b\x1b[2000000000S\x1b[2000000000@");
    expect(performance.now() - before).toBeLessThan(1000);
  });
});

describe("SharedTerminal", () => {
  beforeEach(() => void vi.stubGlobal("requestAnimationFrame", (fn: () => void) => setTimeout(fn, 0)));
  afterEach(() => void vi.unstubAllGlobals());
  const output = (at: number, data: string): ExecOutput => ({ type: "exec.output", exec: "x", stream: "pty", at, size: data.length, pos: at, data });
  const gap = (from: number, to: number): ExecGap => ({ type: "exec.gap", exec: "x", stream: "pty", from, to, kept: false });
  const make = () => {
    const asked: object[] = [];
    const terminal = new SharedTerminal("x", { cols: 20, rows: 2 }, {
      input: async (_, data) => void asked.push({ data }),
      resize: async (_, size) => void asked.push(size),
    });
    return { terminal, asked };
  };
  const screen = (terminal: SharedTerminal): string[] => terminal.grid.lines(0).map(textOf);

  it("shows its bytes once, however often they come", async () => {
    const { terminal } = make();
    for (const frame of [output(0, "$ ec"), output(0, "$ echo"), output(6, " hi")]) terminal.feed(frame);
    await vi.waitFor(() => expect(screen(terminal)[0]).toBe("$ echo hi"));
    expect(terminal.version.value).toBeGreaterThan(0);
  });

  it("begins anew after a hole", async () => {
    const { terminal } = make();
    for (const frame of [output(0, "old\x1b[31m"), gap(8, 100), output(100, "new")]) terminal.feed(frame);
    await vi.waitFor(() => expect(screen(terminal)[0]).toBe("new"));
    expect(terminal.grid.lines(0)[0]!.runs[0]!.cls).toBe("");
  });

  it("holds what is typed until something is printed, and asks for a size once", async () => {
    const { terminal, asked } = make();
    terminal.input.type("ls\r");
    expect(asked).toEqual([]);
    terminal.feed(output(0, "$ "));
    await vi.waitFor(() => expect(asked).toEqual([{ data: "ls\r" }]));
    terminal.resize(20, 2);
    terminal.resize(30, 5);
    terminal.resize(30, 5);
    expect(asked.slice(1)).toEqual([{ cols: 30, rows: 5 }]);
    expect(terminal.grid).toMatchObject({ cols: 30, rows: 5 });
  });
});
