import { describe, expect, it } from "vitest";
import * as model from "../src/model/room";
import { rowsOf } from "../src/model/timeline";
import { toldOf } from "../src/model/told";
import { currentTurn, partsOf, tokensOf, waitingTurns, type Turn } from "../src/model/turns";
import { namingUnseen } from "../src/model/words";
import type { AgentDelta, Joined, LogEvent, OpenTurn, Participant } from "../src/protocol";

const mara: Participant = { id: "p1", name: "Mara", kind: "human" };
const jonas: Participant = { id: "p2", name: "Jonas", kind: "human" };
const duet: Participant = { id: "agent", name: "duet", kind: "agent", role: "member" };
const event = (offset: number, by: Participant, rest: object): LogEvent => ({ room: "r", offset, ts: offset, by, ...rest }) as LogEvent;
const queued = (offset: number, turn = "t", by = mara, rest: object = {}): LogEvent => event(offset, by, { type: "agent.queued", turn, question: "Why?", ...rest });
const started = (offset: number, turn = "t", by = mara): LogEvent => event(offset, by, { type: "agent.started", turn, question: "Why?" });
const approval = (offset: number, call = "c", command = "ls", at = 0, rest: object = {}): LogEvent => event(offset, duet, { type: "agent.approval", turn: "t", call, command, at, expiresTs: 99, ...rest });
const decided = (offset: number, call = "c", decision = "allow", note?: string): LogEvent => event(offset, jonas, { type: "agent.decided", turn: "t", call, decision, note });
const ran = (offset: number, exec = "x", command = "ls", at = 0): LogEvent => event(offset, duet, { type: "exec.started", turn: "t", at, exec, command, cwd: "/" });
const ranEnd = (offset: number, exec = "x"): LogEvent => event(offset, duet, { type: "exec.exited", exec, ok: true, exitCode: 0, durationMs: 1, bytes: {}, truncated: {} });
const said = (offset: number, text: string, rest: object = {}): LogEvent => event(offset, duet, { type: "message", id: "m_t", turn: "t", text, ...rest });
const finished = (offset: number, status = "done", rest: object = {}): LogEvent => event(offset, duet, { type: "agent.finished", turn: "t", status, ...rest });
const delta = (at: number, text: string, turn = "t"): AgentDelta => ({ type: "agent.delta", room: "r", turn, at, text });
const joined = (over: Partial<Joined> = {}): Joined =>
  ({ type: "joined", room: "r", role: "member", epoch: "e", offset: 0, oldest: 1, resumed: false, participants: [mara, duet], events: [], execs: [], turns: [], ...over }) as Joined;
const open = (over: Partial<OpenTurn>): OpenTurn => ({ turn: "t", by: mara, question: "Why?", status: "thinking", text: "", calls: [], ...over });

const fresh = (): model.RoomState => model.applyJoined(model.emptyRoom("r"), joined());
/** Live events and deltas, in the order they come. */
function after(...frames: (LogEvent | AgentDelta)[]): model.RoomState {
  return frames.reduce((room, frame) => (frame.type === "agent.delta" ? model.withDelta(room, frame) : model.applyLive(room, frame)), fresh());
}
const turnIn = (room: model.RoomState, id = "t"): Turn => room.turns.get(id)!;
const shape = (room: model.RoomState): string[] =>
  partsOf(turnIn(room)).map((part) => (part.kind === "text" ? part.text : part.kind === "run" ? `run ${part.exec}${part.allowed ? " by " + part.allowed.by.name : ""}` : `wants ${part.wanted.command}${part.decided ? " " + part.decided.decision : ""}`));

describe("a turn that is watched", () => {
  it("shows words, commands and conclusion where they came", () => {
    let room = after(queued(1), started(2), delta(0, "I will"), delta(6, " look."));
    expect(turnIn(room)).toMatchObject({ status: "thinking", text: "I will look.", by: mara });
    room = [approval(3, "c", "ls", 12), decided(4), ran(5, "x", "ls", 12)].reduce(model.applyLive, room);
    expect(turnIn(room).status).toBe("running");
    room = model.applyLive(room, ranEnd(6));
    expect(turnIn(room).status).toBe("thinking");
    room = model.withDelta(room, delta(12, "\n\nAll is well."));
    expect(shape(room)).toEqual(["I will look.", "run x by Jonas", "All is well."]);
    room = [said(7, "I will look.\n\nAll is well."), finished(8, "done", { usage: { inputTokens: 3, outputTokens: 4 } })].reduce(model.applyLive, room);
    expect(shape(room)).toEqual(["I will look.", "run x by Jonas", "All is well."]);
    expect(tokensOf(room.turns)).toBe(7);
    expect(currentTurn(room.turns)).toBeUndefined();
  });

  it("shows a command where it was wanted, whatever was said after it", () => {
    const room = after(queued(1), started(2), delta(0, "I 😀"), ran(3, "x", "ls", 3), delta(3, " and then"), ran(4, "y", "pwd", 7), delta(12, "\n\nSo."));
    expect(shape(room)).toEqual(["I 😀", "run x", " and", "run y", " then\n\nSo."]);
    expect(shape(after(queued(1), started(2), delta(0, "I"), ran(3, "x", "ls", 9)))).toEqual(["I", "run x"]);
  });

  it("shows a command that was refused, and asks nobody about it", () => {
    let room = after(queued(1), started(2), delta(0, "I try."), approval(3, "c", "ls", 6, { expiresTs: 3 }));
    expect(turnIn(room).status).toBe("thinking");
    expect(turnIn(room).wanted).toMatchObject([{ command: "ls", asks: false }]);
    room = model.applyLive(room, decided(4, "c", "deny", "Commands are off."));
    expect(shape(room)).toEqual(["I try.", "wants ls deny"]);
    expect(toldOf(approval(3, "c", "ls", 6, { expiresTs: 3 }), "duet")).toBe("duet wants to run a command: ls");
  });

  it("skips overlap by code points and marks a hole until the message fills it", () => {
    let room = after(queued(1), started(2), delta(0, "a😀b"), delta(1, "😀bc"), delta(0, "a"));
    expect(turnIn(room)).toMatchObject({ text: "a😀bc", have: 4, holes: false });
    room = model.withDelta(room, delta(10, "end"));
    expect(turnIn(room)).toMatchObject({ text: "a😀bc…end", have: 13, holes: true });
    room = model.applyLive(room, said(3, "a😀bc......end"));
    expect(turnIn(room).text).toBe("a😀bc......end");
    expect(model.withDelta(room, delta(20, "late"))).toBe(room);
  });

  it("tells a denial, and that nobody decided", () => {
    let room = after(queued(1), started(2), approval(3), decided(4, "c", "deny", "no"));
    expect(shape(room)).toEqual(["wants ls deny"]);
    // The same command again is another one.
    room = [approval(5, "c2"), decided(6, "c2"), ran(7)].reduce(model.applyLive, room);
    expect(shape(room)).toEqual(["wants ls deny", "run x by Jonas"]);
  });

  it("hides a retry with the next word", () => {
    let room = after(queued(1), started(2));
    room = model.withRetry(room, { type: "agent.retry", room: "r", turn: "t", attempt: 1, message: "Busy.", retryTs: 9 });
    expect(turnIn(room)).toMatchObject({ status: "retrying", retry: { message: "Busy." } });
    expect(turnIn(model.withDelta(room, delta(0, "Here")))).toMatchObject({ status: "thinking", retry: undefined });
  });

  it("keeps its end, its words and that they are not finished", () => {
    const room = after(queued(1), started(2), delta(0, "It is"), said(3, "It is", { partial: true }), finished(4, "stopped", { message: "Jonas stopped this." }));
    expect(turnIn(room)).toMatchObject({ status: "stopped", message: { partial: true }, end: { message: "Jonas stopped this." } });
  });
});

describe("turns in the timeline", () => {
  it("are one block each, with the question before them unless a message asked it", () => {
    const room = after(queued(1), started(2), ran(3), said(4, "Done."), finished(5), queued(6, "u", jonas, { replyTo: "m9" }));
    expect(room.items.map((item) => `${item.kind} ${item.id}`)).toEqual(["ask t", "turn t", "exec x"]);
    expect(rowsOf(room.items, () => "day").map((row) => row.key)).toEqual(["day-day", "ask-t", "turn-t"]);
  });

  it("wait in the order asked, and one that is taken back is told where it ended", () => {
    let room = after(queued(1), started(2), queued(3, "u"), queued(4, "v", jonas));
    expect(waitingTurns(room.turns).map((turn) => turn.id)).toEqual(["u", "v"]);
    room = model.applyLive(room, event(5, duet, { type: "agent.finished", turn: "u", status: "stopped" }));
    expect(waitingTurns(room.turns).map((turn) => turn.id)).toEqual(["v"]);
    expect(room.items.find((item) => item.kind === "turn" && item.id === "u")?.offset).toBe(5);
    expect(currentTurn(room.turns)?.id).toBe("t");
  });

  it("read back, have their commands among the words", () => {
    const words = "😀 I look. And \n\nSo.";
    const events = [queued(1), started(2), approval(3, "c", "ls", 9), decided(4), ran(5, "x", "ls", 9), ranEnd(6), ran(7, "y", "pwd", 14), ranEnd(8, "y"), said(9, words), finished(10)];
    const room = model.applyJoined(model.emptyRoom("r"), joined({ offset: 10, events }));
    expect(shape(room)).toEqual(["😀 I look.", "run x by Jonas", " And", "run y", "So."]);
    expect(turnIn(room).status).toBe("done");
  });

  it("read back from a log that does not say where, have their commands first", () => {
    const bare = ran(3) as LogEvent & { at?: number };
    delete bare.at;
    const events = [queued(1), started(2), bare, ranEnd(4), said(5, "Words."), finished(6)];
    expect(shape(model.applyJoined(model.emptyRoom("r"), joined({ offset: 6, events })))).toEqual(["run x", "Words."]);
  });

  it("are whole when a page ends in their middle", () => {
    const early = [queued(1), started(2), approval(3)];
    const late = [decided(4), ran(5), ranEnd(6), said(7, "Words."), finished(8)];
    let room = model.applyJoined(model.emptyRoom("r"), joined({ offset: 8, events: late }));
    expect(room.items.find((item) => item.kind === "turn")).toMatchObject({ offset: 4 });
    room = model.applyPage(room, early, false);
    expect(room.items.filter((item) => item.kind === "turn")).toMatchObject([{ offset: 2 }]);
    expect(shape(room)).toEqual(["run x by Jonas", "Words."]);
    expect(turnIn(room)).toMatchObject({ status: "done", by: mara });
  });

  it("forget what was cleared", () => {
    const room = after(queued(1), started(2), said(3, "Words."), finished(4), event(5, mara, { type: "room.cleared" }));
    expect(room.items).toEqual([]);
    expect(room.turns.size).toBe(0);
  });
});

describe("joining in the middle of a turn", () => {
  it("has the words so far, goes on with the next ones, and knows what waits", () => {
    const turns = [open({ status: "approval", text: "I 😀", calls: [{ call: "c", command: "ls", at: 3, status: "approval", expiresTs: 9 }] }), open({ turn: "u", by: jonas, status: "queued" })];
    let room = model.applyJoined(model.emptyRoom("r"), joined({ offset: 3, events: [queued(1), started(2), approval(3, "c", "ls", 3)], turns: turns as Joined["turns"] }));
    expect(shape(room)).toEqual(["I 😀", "wants ls"]);
    expect(turnIn(room)).toMatchObject({ status: "approval", have: 3 });
    expect(waitingTurns(room.turns).map((turn) => turn.id)).toEqual(["u"]);
    room = [decided(4), ran(5, "x", "ls", 3), ranEnd(6)].reduce(model.applyLive, room);
    room = model.withDelta(room, delta(3, "\n\nDone."));
    expect(shape(room)).toEqual(["I 😀", "run x by Jonas", "Done."]);
  });

  it("shows a turn whose start lies on an older page, and the command that it runs", () => {
    const exec = ran(2, "x", "ls", 5) as LogEvent & { type: "exec.started" };
    const turns = [open({ status: "running", text: "Look:", calls: [{ call: "c", command: "ls", at: 5, status: "running", exec: "x" }] })];
    const room = model.applyJoined(model.emptyRoom("r"), joined({ offset: 90, events: [], execs: [{ started: exec, streams: {} }], turns: turns as Joined["turns"] }));
    expect(room.items.filter((item) => item.kind === "turn")).toHaveLength(1);
    expect(shape(room)).toEqual(["Look:", "run x"]);
  });

  it("asks nothing about a command that was denied on a page that is not here", () => {
    const calls = [{ call: "c", command: "rm", at: 0, status: "denied", expiresTs: 9 }, { call: "d", command: "ls", at: 0, status: "approval", expiresTs: 9 }];
    let room = model.applyJoined(model.emptyRoom("r"), joined({ offset: 90, turns: [open({ status: "approval", calls })] as Joined["turns"] }));
    expect(shape(room)).toEqual(["wants ls"]);
    room = model.applyPage(room, [queued(1), started(2), approval(3, "c", "rm"), decided(4, "c", "deny")], false);
    expect(shape(room)).toEqual(["wants rm deny", "wants ls"]);
  });

  it("loses and doubles nothing when it resumes", () => {
    const before = after(queued(1), started(2), delta(0, "I will"));
    let room = model.applyJoined({ ...before, joined: false }, joined({ offset: 2, resumed: true, turns: [open({ text: "I will look." })] as Joined["turns"] }));
    room = model.withDelta(room, delta(6, " look."));
    room = model.withDelta(room, delta(12, " Now."));
    expect(turnIn(room).text).toBe("I will look. Now.");
    expect(room.items.filter((item) => item.kind === "turn")).toHaveLength(1);
  });
});

describe("a command that is to be allowed", () => {
  it("names what would not be seen, or would turn it around", () => {
    expect(namingUnseen("ls\n\t-l")).toEqual([{ text: "ls\n\t-l", unseen: false }]);
    expect(namingUnseen("ls \u202etxt\r\u200b")).toEqual([
      { text: "ls ", unseen: false },
      { text: "U+202E", unseen: true },
      { text: "txt", unseen: false },
      { text: "U+000D", unseen: true },
      { text: "U+200B", unseen: true },
    ]);
  });
});

describe("what a screen reader is told", () => {
  it("is whole sentences", () => {
    expect(toldOf(started(1), "duet")).toBe("duet is thinking for Mara.");
    expect(toldOf(approval(1), "duet")).toContain("needs an answer: ls");
    expect(toldOf(decided(1, "c", "deny", "no"), "duet")).toBe("Jonas denied the command: no");
    expect(toldOf(said(1, "Four."), "duet")).toBe("duet: Four.");
    expect(toldOf(finished(1), "duet")).toBeUndefined();
    expect(toldOf(finished(1, "failed", { message: "Broke off." }), "duet")).toBe("Broke off.");
  });
});
