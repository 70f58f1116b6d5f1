/** A clock that moves when it is told to. */
import type { Clock } from "../src/net/reconnector";

export class FakeClock implements Clock {
  #now = 1_000_000;
  #timers: { at: number; fn: () => void }[] = [];

  constructor(public dice = 0.5) {}

  now(): number {
    return this.#now;
  }
  random(): number {
    return this.dice;
  }
  after(ms: number, fn: () => void): () => void {
    const timer = { at: this.#now + ms, fn };
    this.#timers.push(timer);
    return () => (this.#timers = this.#timers.filter((one) => one !== timer));
  }
  advance(ms: number): void {
    const until = this.#now + ms;
    for (;;) {
      const due = this.#timers.filter((one) => one.at <= until).sort((a, b) => a.at - b.at)[0];
      if (!due) break;
      this.#timers = this.#timers.filter((one) => one !== due);
      this.#now = due.at;
      due.fn();
    }
    this.#now = until;
  }
}
