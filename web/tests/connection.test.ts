import { beforeEach, describe, expect, it } from "vitest";
import { Connection, LOST, NO_ANSWER, RequestError, type SocketLike } from "../src/net/connection";
import type { LinkState } from "../src/net/reconnector";
import type { ServerFrame } from "../src/protocol";
import { FakeClock } from "./fake-clock";

class FakeSocket implements SocketLike {
  sent: { type: string; ref?: string; [field: string]: unknown }[] = [];
  closedBy?: number | undefined;
  onopen: SocketLike["onopen"] = null;
  onmessage: SocketLike["onmessage"] = null;
  onclose: SocketLike["onclose"] = null;
  send(data: string): void {
    this.sent.push(JSON.parse(data));
  }
  close(): void {
    this.onclose?.({ code: 1006, reason: "" });
  }
  say(frame: object): void {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }
  last() {
    return this.sent.at(-1)!;
  }
}

/** After every microtask that is due. */
const settled = () => new Promise<void>((resolve) => setTimeout(resolve));
const limits = {};

describe("Connection", () => {
  let sockets: FakeSocket[];
  let clock: FakeClock;
  let states: LinkState[];
  let events: ServerFrame[];
  let hello: { token?: string; name?: string };
  let connection: Connection;
  let welcomes: number;

  beforeEach(() => {
    sockets = [];
    clock = new FakeClock();
    states = [];
    events = [];
    welcomes = 0;
    hello = { name: "Mara" };
    connection = new Connection(
      () => {
        const socket = new FakeSocket();
        sockets.push(socket);
        return socket;
      },
      {
        hello: () => hello,
        welcome: () => (welcomes += 1),
        refused: () => {
          const again = hello.token !== undefined;
          hello = { name: "Mara" };
          return again;
        },
        event: (frame) => events.push(frame),
        state: (state) => states.push(state),
      },
      clock,
    );
    connection.start();
  });

  async function open(): Promise<FakeSocket> {
    const socket = sockets.at(-1)!;
    socket.onopen?.({});
    await settled();
    socket.say({ type: "welcome", ref: socket.last().ref, session: "s", token: "t", limits });
    await settled();
    return socket;
  }

  it("says hello first and is ready after the welcome", async () => {
    expect(connection.ready).toBe(false);
    const socket = await open();
    expect(socket.sent[0]).toMatchObject({ type: "hello", name: "Mara", kind: "human" });
    expect(connection.ready).toBe(true);
    expect(states.at(-1)).toEqual({ phase: "open" });
    expect(welcomes).toBe(1);
  });

  it("tries again by name when the token is refused", async () => {
    hello = { token: "old" };
    const socket = sockets[0]!;
    socket.onopen?.({});
    await settled();
    expect(socket.last()).toMatchObject({ token: "old" });
    socket.say({ type: "error", ref: socket.last().ref, code: "unauthenticated", message: "Unknown token.", retryable: false });
    await settled();
    expect(socket.last()).toMatchObject({ type: "hello", name: "Mara" });
  });

  it("answers requests by ref, whatever the order", async () => {
    const socket = await open();
    const one = connection.request({ type: "say", room: "r", text: "1" });
    const two = connection.request({ type: "say", room: "r", text: "2" });
    const [a, b] = socket.sent.slice(-2);
    socket.say({ type: "ack", ref: b!.ref, offset: 2 });
    socket.say({ type: "error", ref: a!.ref, code: "too_large", message: "Shorten it.", retryable: false });
    expect(await two).toMatchObject({ offset: 2 });
    await expect(one).rejects.toMatchObject({ code: "too_large", message: "Shorten it." });
  });

  it("hands frames under a request's ref to it, and events to all", async () => {
    const socket = await open();
    const seen: string[] = [];
    const read = connection.request({ type: "exec.read", exec: "x", at: 0 }, (frame) => seen.push(frame.type));
    const { ref } = socket.last();
    socket.say({ type: "exec.output", ref, exec: "x", stream: "stdout", at: 0, size: 1, pos: 0, data: "a" });
    socket.say({ type: "exec.output", exec: "y", stream: "stdout", at: 0, size: 1, pos: 0, data: "b" });
    socket.say({ type: "ack", ref, at: 1, end: 1 });
    await read;
    expect(seen).toEqual(["exec.output"]);
    expect(events.map((event) => (event as { exec: string }).exec)).toEqual(["y"]);
  });

  it("rejects what is open when the connection is lost, and comes back", async () => {
    const socket = await open();
    const waiting = connection.request({ type: "say", room: "r", text: "1" });
    socket.onclose?.({ code: 4000, reason: "restarting" });
    await expect(waiting).rejects.toMatchObject({ code: LOST });
    await expect(connection.request({ type: "ping" })).rejects.toBeInstanceOf(RequestError);
    expect(states.at(-1)).toMatchObject({ phase: "waiting", why: "restarting" });
    clock.advance(1000);
    expect(sockets).toHaveLength(2);
  });

  it("gives up on a request that is never answered", async () => {
    await open();
    const waiting = connection.request({ type: "say", room: "r", text: "1" });
    const failed = expect(waiting).rejects.toMatchObject({ code: NO_ANSWER });
    clock.advance(20_000);
    await failed;
  });

  it("leaves a server that went silent and tries anew", async () => {
    const socket = await open();
    clock.advance(25_000);
    expect(socket.last().type).toBe("ping");
    socket.say({ type: "pong" });
    clock.advance(70_000);
    expect(sockets.length).toBeGreaterThan(1);
  });

  it("stops for good when told so", async () => {
    const socket = await open();
    socket.onclose?.({ code: 4501, reason: "You were removed from this server." });
    expect(states.at(-1)).toEqual({ phase: "stopped", why: "You were removed from this server." });
    clock.advance(600_000);
    expect(sockets).toHaveLength(1);
  });
});
