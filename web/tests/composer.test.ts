import { describe, expect, it } from "vitest";
import { History, mentionAt, parse, refusal, unknownCommand } from "../src/model/composer";

describe("parse", () => {
  it.each([
    ["hello", "message", { mode: "message", text: "hello" }],
    ["!ls -la", "message", { mode: "run", text: "ls -la" }],
    ["! ls", "message", { mode: "run", text: "ls" }],
    ["/run make test", "message", { mode: "run", text: "make test" }],
    ["/run\nmake test", "message", { mode: "run", text: "make test" }],
    ["/runner up", "message", { mode: "message", text: "/runner up" }],
    ["/run", "message", { mode: "run", text: "" }],
    ["!", "message", { mode: "message", text: "!" }],
    ["/ask why?", "run", { mode: "ask", text: "why?" }],
    ["why?", "ask", { mode: "ask", text: "why?" }],
    ["!ls", "ask", { mode: "run", text: "ls" }],
    ["/asking", "message", { mode: "message", text: "/asking" }],
    ["@duet why?", "message", { mode: "message", text: "@duet why?" }],
    ["ls", "run", { mode: "run", text: "ls" }],
    ["!ls", "run", { mode: "run", text: "ls" }],
    ["  hi  ", "message", { mode: "message", text: "hi" }],
  ] as const)("%j in %s mode", (raw, mode, expected) => {
    expect(parse(raw, mode)).toEqual(expected);
  });
});

describe("refusal", () => {
  it("counts code points of text and bytes of commands", () => {
    expect(refusal({ mode: "message", text: "😀😀" }, { textChars: 2 })).toBeUndefined();
    expect(refusal({ mode: "message", text: "😀😀😀" }, { textChars: 2 })).toMatch(/3 characters; at most 2/u);
    expect(refusal({ mode: "run", text: "ää" }, { commandBytes: 4 })).toBeUndefined();
    expect(refusal({ mode: "run", text: "äää" }, { commandBytes: 4 })).toMatch(/6 bytes; at most 4/u);
  });
  it("asks for something to send", () => {
    expect(refusal({ mode: "run", text: "" }, {})).toMatch(/command/u);
    expect(refusal({ mode: "message", text: "" }, {})).toBeDefined();
    expect(refusal({ mode: "message", text: "a\0b" }, {})).toMatch(/NUL/u);
  });
});

describe("unknownCommand", () => {
  it.each([
    ["/bogus", "message"],
    ["/Bogus and more", "message"],
    ["/rnu\nls", "ask"],
    ["!", "message"],
    ["! ", "run"],
  ] as const)("tells of %j in %s mode", (raw, mode) => {
    expect(unknownCommand(raw, mode)).toMatch(/space before it/u);
  });
  it.each([
    ["/run ls", "message"],
    ["/ask", "message"],
    ["!ls", "message"],
    ["/etc/hosts is empty", "message"],
    ["/", "message"],
    ["// a comment", "message"],
    ["/env", "run"],
    [" /bogus", "message"],
    [" !", "message"],
    ["and/or", "message"],
  ] as const)("lets %j pass in %s mode", (raw, mode) => {
    expect(unknownCommand(raw, mode)).toBeUndefined();
  });
});

describe("History", () => {
  it("walks back and forth and keeps the draft", () => {
    const history = new History(["one", "two"]);
    expect(history.up("draft")).toBe("two");
    expect(history.up("two")).toBe("one");
    expect(history.up("one")).toBeUndefined();
    expect(history.down()).toBe("two");
    expect(history.down()).toBe("draft");
    expect(history.down()).toBeUndefined();
  });
  it("keeps no line twice in a row and no more than its bound", () => {
    const history = new History();
    history.push("a");
    history.push("a");
    expect(history.lines).toEqual(["a"]);
    for (let i = 0; i < 300; i += 1) history.push(`line ${i}`);
    expect(history.lines).toHaveLength(100);
    expect(history.up("")).toBe("line 299");
  });
});

describe("mentionAt", () => {
  it.each<[string, { from: number; to: number } | undefined]>([
    ["@", { from: 0, to: 1 }],
    ["@du", { from: 0, to: 3 }],
    ["@DU", { from: 0, to: 3 }],
    ["well @d", { from: 5, to: 7 }],
    ["(@d", { from: 1, to: 3 }],
    ["@duet", undefined],
    ["@ann", undefined],
    ["me@d", undefined],
    ["x/@d", undefined],
    ["@d ", undefined],
    ["du", undefined],
  ])("%j", (text, expected) => expect(mentionAt(text, text.length, "duet")).toEqual(expected));

  it("is not inside a word", () => {
    expect(mentionAt("@dab", 2, "duet")).toBeUndefined();
    expect(mentionAt("@d ab", 2, "duet")).toEqual({ from: 0, to: 2 });
  });
});
