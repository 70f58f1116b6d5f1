/** One WebSocket at a time: hello, requests with their replies, events out. What the frames mean
 * to the page is not known here. */
import type { ClientFrame, ServerFrame, Welcome, ErrorFrame } from "../protocol";
import { Reconnector, systemClock, type Clock, type LinkState } from "./reconnector";

/** A request without an answer for this long failed; what has a key is then sent again. */
const REQUEST_TIMEOUT_MS = 20_000;
/** Silence after which the page asks whether the other side is still there. */
const PING_EVERY_MS = 25_000;

export class RequestError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly retryable: boolean,
    readonly retryAfterMs?: number,
  ) {
    super(message);
  }
  static of(frame: ErrorFrame): RequestError {
    return new RequestError(frame.code, frame.message, frame.retryable, frame.retryAfterMs);
  }
}

/** The page's own codes, beside those of PROTOCOL. */
export const LOST = "connection_lost";
export const NO_ANSWER = "no_answer";

/** What the connection needs of a socket: the browser's, or a test's. */
export interface SocketLike {
  send(data: string): void;
  close(code?: number, reason?: string): void;
  onopen: ((event: unknown) => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
}

export interface ConnectionHandlers {
  hello(): { token?: string; name?: string };
  /** Before any other frame of the session is handed on. */
  welcome(frame: Welcome): void;
  /** A hello was refused: true if another one should be tried (the token was dropped). */
  refused(error: RequestError): boolean;
  event(frame: ServerFrame): void;
  state(state: LinkState): void;
}

interface Waiting {
  resolve(frame: ServerFrame): void;
  reject(error: RequestError): void;
  stop(): void;
  each?: ((frame: ServerFrame) => void) | undefined;
}

export class Connection {
  readonly reconnector: Reconnector;
  #socket: SocketLike | undefined;
  #ready = false;
  #refs = 0;
  #waiting = new Map<string, Waiting>();
  #lastHeardTs = 0;
  #byeReason = "";
  #stopPing: (() => void) | undefined;

  constructor(
    private readonly open: () => SocketLike,
    private readonly handlers: ConnectionHandlers,
    private readonly clock: Clock = systemClock,
  ) {
    this.reconnector = new Reconnector(() => this.#connect(), (state) => handlers.state(state), clock);
  }

  get ready(): boolean {
    return this.#ready;
  }

  start(): void {
    this.reconnector.start();
  }

  /** Ends the session for good, as when a person signs out. */
  end(why: string): void {
    this.#drop(why);
    this.reconnector.stop(why);
  }

  /** Sends without waiting; false when there is no session. */
  send(frame: ClientFrame): boolean {
    if (!this.#ready) return false;
    this.#socket?.send(JSON.stringify(frame));
    return true;
  }

  /** Sends and awaits the reply with its ref; `each` gets frames that come under the ref before it. */
  request<T extends ServerFrame>(frame: ClientFrame, each?: (frame: ServerFrame) => void): Promise<T> {
    if (!this.#ready) return Promise.reject(new RequestError(LOST, "Not connected. It is sent again when the connection is back.", true));
    return this.#ask<T>(frame, each);
  }

  #ask<T extends ServerFrame>(frame: ClientFrame, each?: (frame: ServerFrame) => void): Promise<T> {
    const ref = `r${(this.#refs += 1)}`;
    return new Promise<T>((resolve, reject) => {
      const stop = this.clock.after(REQUEST_TIMEOUT_MS, () => {
        this.#waiting.delete(ref);
        reject(new RequestError(NO_ANSWER, "The server did not answer in time. Try again.", true));
      });
      this.#waiting.set(ref, { resolve: resolve as (frame: ServerFrame) => void, reject, stop, each });
      this.#socket?.send(JSON.stringify({ ...frame, ref }));
    });
  }

  #connect(): void {
    this.#byeReason = "";
    const socket = this.open();
    this.#socket = socket;
    socket.onopen = () => void this.#hello(socket);
    socket.onmessage = ({ data }) => {
      if (socket === this.#socket && typeof data === "string") this.#receive(data);
    };
    socket.onclose = ({ code, reason }) => {
      if (socket !== this.#socket) return;
      const why = reason || this.#byeReason || "The connection was lost.";
      this.#drop(why);
      if (this.reconnector.state.phase !== "stopped") this.reconnector.closed(code, why);
    };
  }

  async #hello(socket: SocketLike): Promise<void> {
    for (;;) {
      try {
        const welcome = await this.#ask<Welcome>({ type: "hello", kind: "human", ...this.handlers.hello() });
        if (socket !== this.#socket) return;
        this.#ready = true;
        this.reconnector.opened();
        this.handlers.welcome(welcome);
        this.#ping();
        return;
      } catch (error) {
        if (socket !== this.#socket || !(error instanceof RequestError)) return;
        if (error.code === LOST || error.code === NO_ANSWER) return socket.close();
        if (this.handlers.refused(error)) continue;
        return this.end(error.message);
      }
    }
  }

  #receive(data: string): void {
    this.#lastHeardTs = this.clock.now();
    const frame = JSON.parse(data) as ServerFrame & { ref?: string };
    if (frame.type === "bye") this.#byeReason = frame.reason;
    const waiting = frame.ref ? this.#waiting.get(frame.ref) : undefined;
    if (!waiting || !frame.ref) {
      this.handlers.event(frame);
      return;
    }
    if (frame.type === "exec.output" || frame.type === "exec.gap") {
      waiting.each?.(frame);
      return;
    }
    this.#waiting.delete(frame.ref);
    waiting.stop();
    if (frame.type === "error") waiting.reject(RequestError.of(frame));
    else waiting.resolve(frame);
  }

  /** A dead network closes nothing by itself: ask after silence, give up after twice the silence. */
  #ping(): void {
    this.#stopPing?.();
    this.#stopPing = this.clock.after(PING_EVERY_MS, () => {
      if (this.clock.now() - this.#lastHeardTs >= 2 * PING_EVERY_MS) {
        this.#drop("The server went silent.");
        this.reconnector.closed(1006, "The server went silent.");
        return;
      }
      this.send({ type: "ping" });
      this.#ping();
    });
  }

  #drop(why: string): void {
    this.#ready = false;
    this.#stopPing?.();
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.close();
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const one of waiting) {
      one.stop();
      one.reject(new RequestError(LOST, why, true));
    }
  }
}
