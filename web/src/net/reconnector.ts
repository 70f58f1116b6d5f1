/** When to try again: a state machine over an injected clock, timer and dice. It knows nothing of
 * sockets; it is told what happened and calls `connect` when it is time. */

export interface Clock {
  now(): number;
  /** Runs `fn` after `ms`; returns what takes it back. */
  after(ms: number, fn: () => void): () => void;
  /** A number in [0, 1). */
  random(): number;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  after: (ms, fn) => {
    const id = setTimeout(fn, ms);
    return () => clearTimeout(id);
  },
  random: () => Math.random(),
};

/** First wait, in milliseconds: a server that restarts is back in about that time. */
export const FIRST_WAIT_MS = 500;
/** Longest wait: past this a person would rather press the button. */
export const MAX_WAIT_MS = 20_000;
/** A connection that lived this long was good: the next loss starts from the first wait again. */
export const GOOD_AFTER_MS = 10_000;

/** Half fixed, half dice: a thousand pages of one server must not come back in one moment. */
export function backoff(attempt: number, random: number): number {
  const full = Math.min(MAX_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(attempt, 16));
  return Math.round(full / 2 + (full / 2) * random);
}

/** Whether a client should come back after this close code; PROTOCOL's table. */
export function shouldReconnect(code: number): boolean {
  if (code >= 4000 && code <= 4499) return true;
  // 1005 and 1000: closed without a reason by something between us; the page is still open.
  return [1000, 1001, 1005, 1006, 1011, 1012, 1013].includes(code);
}

export type LinkState =
  | { phase: "connecting"; attempt: number }
  | { phase: "open" }
  | { phase: "waiting"; attempt: number; untilTs: number; why: string }
  | { phase: "stopped"; why: string };

export class Reconnector {
  #attempt = 0;
  #openedTs = 0;
  #cancel: (() => void) | undefined;
  #state: LinkState = { phase: "connecting", attempt: 0 };

  constructor(
    private readonly connect: () => void,
    private readonly onState: (state: LinkState) => void,
    private readonly clock: Clock = systemClock,
  ) {}

  get state(): LinkState {
    return this.#state;
  }

  start(): void {
    this.#go();
  }

  /** The session is up (welcome received). */
  opened(): void {
    this.#openedTs = this.clock.now();
    this.#set({ phase: "open" });
  }

  closed(code: number, why: string): void {
    if (!shouldReconnect(code)) {
      this.stop(why);
      return;
    }
    const lived = this.#state.phase === "open" ? this.clock.now() - this.#openedTs : 0;
    if (lived >= GOOD_AFTER_MS) this.#attempt = 0;
    const wait = backoff(this.#attempt, this.clock.random());
    this.#attempt += 1;
    const untilTs = this.clock.now() + wait;
    this.#set({ phase: "waiting", attempt: this.#attempt, untilTs, why });
    this.#cancel?.();
    this.#cancel = this.clock.after(wait, () => this.#go());
  }

  /** Try at once: a person asked, or the machine came back online. Does nothing while open. */
  now(): void {
    if (this.#state.phase === "waiting" || this.#state.phase === "stopped") this.#go();
  }

  stop(why: string): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#set({ phase: "stopped", why });
  }

  #go(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#set({ phase: "connecting", attempt: this.#attempt });
    this.connect();
  }

  #set(state: LinkState): void {
    this.#state = state;
    this.onState(state);
  }
}
