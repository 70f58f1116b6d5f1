import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { LOST, RequestError, type Connection } from "../src/net/connection";
import { RoomSession } from "../src/state/room-session";
import type { ClientFrame, ExecOutput, Joined, LogEvent, Participant, ServerFrame } from "../src/protocol";
import { textOf } from "../src/term/cells";

const mara: Participant = { id: "p1", name: "Mara", kind: "human" };
const jonas: Participant = { id: "p2", name: "Jonas", kind: "human" };

/** Answers what it is told to; remembers what was asked. */
class FakeConnection {
  asked: ClientFrame[] = [];
  waiting: { frame: ClientFrame; resolve: (reply: ServerFrame) => void; reject: (error: Error) => void; each?: (frame: ServerFrame) => void }[] = [];
  request(frame: ClientFrame, each?: (frame: ServerFrame) => void): Promise<ServerFrame> {
    this.asked.push(frame);
    return new Promise((resolve, reject) => this.waiting.push({ frame, resolve, reject, ...(each && { each }) }));
  }
  send(frame: ClientFrame): boolean {
    this.asked.push(frame);
    return true;
  }
  async answer(reply: object): Promise<void> {
    this.waiting.shift()!.resolve(reply as ServerFrame);
    await flush();
  }
  async refuse(code: string, retryable: boolean): Promise<void> {
    this.waiting.shift()!.reject(new RequestError(code, `Because of ${code}.`, retryable));
    await flush();
  }
}
const flush = async (): Promise<void> => {
  for (let i = 0; i < 10; i += 1) await Promise.resolve();
};
const joined = (over: Partial<Joined> = {}): Joined =>
  ({ type: "joined", room: "r", role: "member", epoch: "e", offset: 0, oldest: 1, resumed: false, participants: [mara], events: [], execs: [], turns: [], ...over }) as Joined;
const event = (offset: number, by: Participant, rest: object): LogEvent => ({ room: "r", offset, ts: offset, by, ...rest }) as LogEvent;
const said = (offset: number, text: string, key?: string, by = mara): LogEvent => event(offset, by, { type: "message", id: `m${offset}`, text, ...(key && { key }) });
const output = (at: number, data: string): ExecOutput => ({ type: "exec.output", room: "r", exec: "x", stream: "stdout", at, size: data.length, pos: at, data });
const exited = (offset: number, bytes: number, stdout = ""): LogEvent =>
  event(offset, mara, { type: "exec.exited", exec: "x", ok: true, exitCode: 0, durationMs: 1, stdout, stderr: "", bytes: { stdout: bytes, stderr: 0 }, truncated: { stdout: false, stderr: false } });
const started = (offset: number): LogEvent => event(offset, mara, { type: "exec.started", exec: "x", command: "seq 3", cwd: "/" });

describe("RoomSession", () => {
  let connection: FakeConnection;
  let room: RoomSession;
  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("requestAnimationFrame", (fn: () => void) => setTimeout(fn, 16));
    connection = new FakeConnection();
    room = new RoomSession("r", connection as unknown as Connection, () => mara, () => undefined);
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });
  const join = async (over: Partial<Joined> = {}): Promise<void> => {
    void room.join();
    await connection.answer(joined(over));
  };
  const lines = (): string[] => {
    const { settled, live } = room.outputs.of("x").rows();
    return [...settled, ...live].map((row) => ("runs" in row ? textOf(row) : "gap" in row ? `[${row.gap.bytes}]` : "…"));
  };

  it("joins from where it was, and again when offsets jump", async () => {
    await join({ offset: 1, events: [said(1, "a")] });
    room.take(said(3, "c"));
    expect(connection.asked.at(-1)).toEqual({ type: "join", room: "r", since: { epoch: "e", offset: 1 } });
    room.take(said(4, "early"));
    expect(room.state.value.items).toHaveLength(1);
    await connection.answer(joined({ offset: 3, resumed: true }));
    for (const one of [said(2, "b"), said(3, "c"), said(4, "d")]) room.take(one);
    expect(room.state.value.items.map((item) => item.offset)).toEqual([1, 2, 3, 4]);
  });

  it("sends again, under the same key, what a lost session left open", async () => {
    await join();
    room.say("message", "hello");
    const first = connection.asked.at(-1) as { key: string };
    await connection.refuse(LOST, true);
    room.disconnected();
    expect(room.outgoing.value).toMatchObject([{ state: "sending", text: "hello" }]);
    await join({ resumed: true });
    expect(connection.asked.at(-1)).toEqual(first);
    room.take(said(1, "hello", first.key));
    expect(room.outgoing.value).toEqual([]);
    await connection.answer({ type: "ack", offset: 1, id: "m1" });
    expect(room.outgoing.value).toEqual([]);
  });

  it("keeps what is typed while away until it can be sent, and sends in order", async () => {
    room.say("message", "one");
    room.say("run", "ls");
    expect(connection.asked).toEqual([]);
    await join();
    expect(connection.asked.slice(1)).toMatchObject([{ type: "say", text: "one" }, { type: "exec", command: "ls" }]);
  });

  it("finds what arrived before the connection was lost in the page it joins with", async () => {
    room.say("message", "one");
    const key = room.outgoing.value[0]!.key;
    await join({ offset: 1, events: [said(1, "one", key)] });
    expect(room.outgoing.value).toEqual([]);
    expect(connection.asked).toHaveLength(1);
  });

  it("keeps a refused message with its reason, and tries again when asked", async () => {
    await join();
    room.say("message", "hello");
    await connection.refuse("unavailable", true);
    expect(room.outgoing.value).toMatchObject([{ state: "failed", problem: "Because of unavailable." }]);
    room.retry(room.outgoing.value[0]!.key);
    expect(room.outgoing.value).toMatchObject([{ state: "sending" }]);
    await connection.answer({ type: "ack", offset: 1, id: "m1" });
    room.take(said(1, "hello"));
    expect(room.outgoing.value).toEqual([]);
  });

  it("sends what came too fast a little later, a few times", async () => {
    await join();
    room.say("message", "fast");
    for (let i = 0; i < 3; i += 1) {
      await connection.refuse("rate_limited", true);
      expect(room.outgoing.value).toMatchObject([{ state: "sending" }]);
      await vi.advanceTimersByTimeAsync(1000);
    }
    expect(connection.asked.filter((frame) => frame.type === "say")).toHaveLength(4);
    await connection.refuse("rate_limited", true);
    expect(room.outgoing.value).toMatchObject([{ state: "failed" }]);
  });

  it("tells an unknown room, and tries a passing refusal again by itself", async () => {
    void room.join();
    await connection.refuse("unknown_room", false);
    expect(room.problem.value).toMatchObject({ code: "unknown_room", passing: false });
    await join({ offset: 1, events: [said(1, "a")] });
    expect(room.problem.value).toBeUndefined();
    void room.join();
    await connection.refuse("unavailable", true);
    expect(room.problem.value).toMatchObject({ passing: true });
    const before = connection.asked.length;
    await vi.advanceTimersByTimeAsync(2000);
    expect(connection.asked.length).toBe(before + 1);
  });

  it("shows output as it comes, once, whatever is repeated by a rejoin", async () => {
    await join();
    room.take(started(1));
    room.take(output(0, "1\n"));
    room.take(output(2, "2\n"));
    room.disconnected();
    await join({ offset: 1, resumed: true, execs: [{ started: started(1) as never, streams: {} }] });
    room.take(output(0, "1\n2\n3\n"));
    room.take(exited(2, 6));
    await vi.advanceTimersByTimeAsync(100);
    expect(lines()).toEqual(["1", "2", "3"]);
  });

  it("shows what was missed as a gap, and the whole once it is read", async () => {
    await join();
    room.take(started(1));
    room.take(output(0, "1\n"));
    room.take(exited(2, 6));
    await vi.advanceTimersByTimeAsync(100);
    expect(lines()).toEqual(["1", "[4]"]);
    const loading = room.outputs.of("x").loadAll(room.read);
    const read = connection.waiting.shift()!;
    expect(read.frame).toMatchObject({ type: "exec.read", stream: "stdout", at: 0 });
    read.each!(output(0, "1\n2\n3\n"));
    read.resolve({ type: "ack", at: 6, end: 6 } as ServerFrame);
    await flush();
    await connection.answer({ type: "ack", at: 0, end: 0 });
    await loading;
    await vi.advanceTimersByTimeAsync(100);
    expect(lines()).toEqual(["1", "2", "3"]);
    expect(room.outputs.of("x").partial).toBe(false);
  });

  it("shows an end's own text when the output was not seen", async () => {
    await join({ offset: 2, events: [started(1), exited(2, 6, "1\n2\n3\n")] });
    const output = room.outputs.of("x");
    const item = room.state.value.items[0]!;
    if (item.kind === "exec") output.exited(item.exited!);
    expect(lines()).toEqual(["1", "2", "3"]);
  });

  it("tells who types until they stop, leave, or fall silent", async () => {
    await join();
    room.take({ type: "typing", room: "r", participant: jonas, on: true });
    expect([...room.state.value.typing.keys()]).toEqual(["p2"]);
    room.take({ type: "typing", room: "r", participant: mara, on: true });
    expect([...room.state.value.typing.keys()]).toEqual(["p2"]);
    await vi.advanceTimersByTimeAsync(8000);
    expect(room.state.value.typing.size).toBe(0);
  });

  it("comes back when the server says so, and stays out when not", async () => {
    await join();
    room.take({ type: "left", room: "r", code: "room_error", message: "It broke.", rejoin: true });
    await vi.advanceTimersByTimeAsync(1000);
    expect(connection.asked.at(-1)).toMatchObject({ type: "join" });
    await connection.answer(joined());
    room.take({ type: "left", room: "r", code: "deleted", message: "It was deleted.", rejoin: false });
    expect(room.problem.value).toMatchObject({ code: "deleted", passing: false });
  });

  it("asks the agent, and settles by the key or by the turn that it knows", async () => {
    await join();
    room.say("ask", "why?");
    const asked = connection.asked.at(-1) as { type: string; key: string };
    expect(asked).toMatchObject({ type: "ask", room: "r", text: "why?" });
    room.take(event(1, mara, { type: "agent.queued", turn: "t", question: "why?", key: asked.key }) as ServerFrame);
    expect(room.outgoing.value).toEqual([]);
    await connection.answer({ type: "ack", turn: "t" });
    room.say("ask", "again?");
    room.take(event(2, mara, { type: "agent.queued", turn: "u", question: "again?" }) as ServerFrame);
    await connection.answer({ type: "ack", turn: "u" });
    expect(room.outgoing.value).toEqual([]);
  });

  it("takes the agent's words, and tells whole sentences of it", async () => {
    await join();
    room.take(event(1, mara, { type: "agent.started", turn: "t", question: "why?" }) as ServerFrame);
    expect(room.told.value).toBe("duet is thinking for Mara.");
    room.take({ type: "agent.delta", room: "r", turn: "t", at: 0, text: "Because" });
    expect(room.state.value.turns.get("t")?.text).toBe("Because");
    expect(room.told.value).toBe("duet is thinking for Mara.");
    void room.decide("t", "c", "deny", "no");
    expect(connection.asked.at(-1)).toEqual({ type: "agent.decide", room: "r", turn: "t", call: "c", decision: "deny", note: "no" });
  });

  it("opens a terminal, feeds it, follows its size and lets it go once it has ended and is closed", async () => {
    await join();
    room.terminal.value = "new";
    void room.openTerminal(80, 24);
    expect(connection.asked.at(-1)).toMatchObject({ type: "exec", command: "bash -l", pty: { cols: 80, rows: 24 } });
    room.take(event(1, mara, { type: "exec.started", exec: "p", command: "bash -l", cwd: "/", pty: { cols: 80, rows: 24 } }) as ServerFrame);
    await connection.answer({ type: "ack", offset: 1, exec: "p" });
    expect(room.terminal.value).toEqual({ exec: "p" });
    room.take({ type: "exec.output", room: "r", exec: "p", stream: "pty", at: 0, size: 2, pos: 0, data: "$ " });
    const terminal = room.terminalOf("p")!;
    expect(terminal.alive.value).toBe(true);
    terminal.input.type("ls");
    expect(connection.asked.at(-1)).toMatchObject({ type: "exec.input", exec: "p", data: "ls" });
    room.take({ type: "exec.resized", room: "r", exec: "p", cols: 100, rows: 30 });
    expect(terminal.grid).toMatchObject({ cols: 100, rows: 30 });
    room.take({ ...exited(2, 0), exec: "p" } as ServerFrame);
    expect(room.terminalOf("p")).toBe(terminal);
    room.closeTerminal();
    expect(room.terminalOf("p")).toBeUndefined();
  });
});
