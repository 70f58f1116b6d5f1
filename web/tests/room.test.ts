import { describe, expect, it } from "vitest";
import * as model from "../src/model/room";
import { dayOf, GROUP_WITHIN_MS, rowsOf } from "../src/model/timeline";
import { settle, type Outgoing } from "../src/state/outgoing";
import type { Joined, LogEvent, Participant } from "../src/protocol";

const mara: Participant = { id: "p1", name: "Mara", kind: "human" };
const jonas: Participant = { id: "p2", name: "Jonas", kind: "human" };
const base = (offset: number, by = mara) => ({ room: "r", offset, ts: 1000 + offset, by });
const message = (offset: number, text: string, by = mara): LogEvent => ({ ...base(offset, by), type: "message", id: `m${offset}`, text });
const started = (offset: number, exec: string) => ({ ...base(offset), type: "exec.started" as const, exec, command: "ls", cwd: "/" });
const exited = (offset: number, exec: string): LogEvent => ({
  ...base(offset), type: "exec.exited", exec, ok: true, exitCode: 0, durationMs: 5, bytes: {}, truncated: {},
});
function joined(over: Partial<Joined>): Joined {
  return {
    type: "joined", room: "r", role: "member", epoch: "e1", offset: 0, oldest: 1, resumed: false,
    participants: [mara], events: [], execs: [], turns: [], ...over,
  } as Joined;
}
const texts = (room: model.RoomState): string[] => room.items.map((item) => (item.kind === "message" ? item.text : item.id));

describe("joining", () => {
  it("takes the newest page and knows that there is more before it", () => {
    const room = model.applyJoined(model.emptyRoom("r"), joined({ offset: 5, events: [message(4, "a"), message(5, "b")] }));
    expect(texts(room)).toEqual(["a", "b"]);
    expect(room).toMatchObject({ offset: 5, from: 4, more: true, joined: true });
    expect(model.positionOf(room)).toEqual({ epoch: "e1", offset: 5 });
  });

  it("keeps what it has when resumed; the missed ones follow", () => {
    let room = model.applyJoined(model.emptyRoom("r"), joined({ offset: 2, events: [message(1, "a"), message(2, "b")] }));
    room = model.applyJoined({ ...room, joined: false }, joined({ offset: 4, resumed: true, participants: [mara, jonas] }));
    expect(room.offset).toBe(2);
    expect(model.leavesHole(room, 3)).toBe(false);
    room = model.applyLive(model.applyLive(room, message(3, "c")), message(4, "d"));
    expect(texts(room)).toEqual(["a", "b", "c", "d"]);
    expect(room.participants).toHaveLength(2);
  });

  it("starts over in another epoch", () => {
    let room = model.applyJoined(model.emptyRoom("r"), joined({ offset: 9, events: [message(9, "old")] }));
    room = model.applyJoined(room, joined({ epoch: "e2", offset: 1, events: [message(1, "new")] }));
    expect(texts(room)).toEqual(["new"]);
    expect(room.offset).toBe(1);
  });

  it("shows a running command that began before the page, once", () => {
    const run = started(2, "x");
    const frame = joined({ offset: 60, events: [message(60, "z")], execs: [{ started: run, streams: {} }] });
    let room = model.applyJoined(model.emptyRoom("r"), frame);
    expect(texts(room)).toEqual(["x", "z"]);
    room = model.applyPage(room, [message(1, "a"), run], false);
    expect(texts(room)).toEqual(["a", "x", "z"]);
    expect(model.runningExecs(room)).toHaveLength(1);
  });
});

describe("live events", () => {
  const room = model.applyJoined(model.emptyRoom("r"), joined({ offset: 0 }));

  it("are taken once", () => {
    const once = model.applyLive(room, message(1, "a"));
    expect(model.applyLive(once, message(1, "a"))).toBe(once);
    expect(model.leavesHole(once, 2)).toBe(false);
    expect(model.leavesHole(once, 3)).toBe(true);
  });

  it("move on past a type that is not known", () => {
    const odd = { ...base(1), type: "poll.opened" } as unknown as LogEvent;
    expect(model.applyLive(room, odd)).toMatchObject({ offset: 1, items: [] });
  });

  it("edit, delete, end", () => {
    let state = model.applyLive(room, message(1, "a"));
    state = model.applyLive(state, message(2, "b"));
    state = model.applyLive(state, { ...base(3), type: "message.edited", id: "m1", text: "A" });
    state = model.applyLive(state, { ...base(4), type: "message.deleted", id: "m2" });
    state = model.applyLive(state, started(5, "x"));
    expect(model.runningExecs(state)).toHaveLength(1);
    state = model.applyLive(state, exited(6, "x"));
    expect(model.runningExecs(state)).toHaveLength(0);
    expect(state.items[0]).toMatchObject({ text: "A", edited: true });
    expect(state.items[1]).toMatchObject({ deleted: true, text: "" });
  });

  it("clear what was before", () => {
    let state = model.applyLive(room, message(1, "a"));
    state = model.applyLive(state, { ...base(2), type: "room.cleared" });
    state = model.applyLive(state, message(3, "b"));
    expect(texts(state)).toEqual(["b"]);
    expect(state.more).toBe(false);
  });

  it("leave untouched items the same objects, so that they are not drawn again", () => {
    const one = model.applyLive(room, message(1, "a"));
    const two = model.applyLive(one, message(2, "b"));
    expect(two.items[0]).toBe(one.items[0]);
  });
});

describe("pages, which come newest first", () => {
  it("apply an end, an edit and a reaction that were seen before their subject", () => {
    const page = [exited(11, "x"), { ...base(12), type: "message.edited" as const, id: "m3", text: "B" }];
    let room = model.applyJoined(model.emptyRoom("r"), joined({ offset: 12, events: page }));
    room = model.applyPage(room, [message(3, "b"), started(4, "x")], true);
    expect(room.items[0]).toMatchObject({ text: "B" });
    expect(model.runningExecs(room)).toHaveLength(0);
    expect(room.from).toBe(3);
    expect(room.offset).toBe(12);
  });

  it("let the newest reaction of a person stand", () => {
    const react = (offset: number, on: boolean): LogEvent => ({ ...base(offset), type: "message.reacted", id: "m1", emoji: "👍", on });
    let room = model.applyJoined(model.emptyRoom("r"), joined({ offset: 9, events: [react(9, false)] }));
    room = model.applyPage(room, [message(1, "a"), react(2, true)], false);
    expect(model.reactionsOf(room.reactions.get("m1"))).toEqual([]);
    room = model.applyLive(room, react(10, true));
    expect(model.reactionsOf(room.reactions.get("m1"))).toEqual([{ emoji: "👍", who: ["p1"] }]);
  });

  it("do not bring back an old sandbox state or name", () => {
    const sandbox = (offset: number, status: string): LogEvent => ({
      ...base(offset), type: "sandbox", id: "sandbox-r", status, workspaceSaved: false, image: "workspace", instanceType: "lite",
    });
    let room = model.applyJoined(model.emptyRoom("r"), joined({ offset: 9, events: [sandbox(9, "running")] }));
    room = model.applyPage(room, [sandbox(2, "starting")], false);
    expect(room.sandbox?.status).toBe("running");
  });
});

describe("presence", () => {
  it("adds once, and a leaving person stops typing", () => {
    let room = model.withPerson(model.withPerson(model.emptyRoom("r"), jonas, true), jonas, true);
    expect(room.participants).toHaveLength(1);
    room = model.withTyping(room, jonas, true);
    room = model.withPerson(model.withPerson(room, mara, true), { ...jonas, name: "Jo" }, true);
    expect(room.participants.map((one) => one.name)).toEqual(["Jo", mara.name]);
    room = model.withPerson(model.withPerson(room, mara, false), jonas, false);
    expect(room.typing.size).toBe(0);
    expect(room.participants).toHaveLength(0);
  });
  it("a message ends its author's typing", () => {
    let room = model.applyJoined(model.emptyRoom("r"), joined({}));
    room = model.withTyping(room, jonas, true);
    expect(model.applyLive(room, message(1, "hi", jonas)).typing.size).toBe(0);
  });
});

describe("rowsOf", () => {
  it("separates days and groups one author's items", () => {
    const at = (ts: number, by: Participant): model.Item => ({ kind: "message", offset: ts, id: `m${ts}`, ts, by, text: "", edited: false, deleted: false });
    const noon = Date.UTC(2026, 0, 5, 12);
    const rows = rowsOf([at(noon, mara), at(noon + 1000, mara), at(noon + 2000, jonas), at(noon + GROUP_WITHIN_MS + 2000, jonas), at(noon + 2 * 86_400_000, jonas)], dayOf);
    expect(rows.map((row) => (row.kind === "day" ? "day" : row.head))).toEqual(["day", true, false, true, true, "day", true]);
    expect(new Set(rows.map((row) => row.key)).size).toBe(rows.length);
  });
});

describe("outgoing", () => {
  const one: Outgoing = { key: "k", mode: "message", text: "a", ts: 0, state: "sending" };
  it("goes when the log holds its key, and only for its author", () => {
    expect(settle([one], [{ ...message(1, "a"), key: "k" }], "p1")).toEqual([]);
    expect(settle([one], [{ ...message(1, "a", jonas), key: "k" }], "p1")).toEqual([one]);
  });
  it("goes by its offset where the event has no key", () => {
    expect(settle([{ ...one, offset: 3 }], [message(3, "a")], "p1")).toEqual([]);
  });
});
