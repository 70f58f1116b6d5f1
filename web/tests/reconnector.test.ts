import { describe, expect, it } from "vitest";
import { backoff, FIRST_WAIT_MS, MAX_WAIT_MS, Reconnector, shouldReconnect, type LinkState } from "../src/net/reconnector";
import { FakeClock } from "./fake-clock";

function setup(random = 0.5) {
  const clock = new FakeClock(random);
  const states: LinkState[] = [];
  let connects = 0;
  const reconnector = new Reconnector(() => (connects += 1), (state) => states.push(state), clock);
  return { clock, states, reconnector, connects: () => connects };
}

describe("backoff", () => {
  it("doubles up to its bound and keeps half of each wait", () => {
    expect(backoff(0, 0)).toBe(FIRST_WAIT_MS / 2);
    expect(backoff(0, 0.999)).toBeLessThanOrEqual(FIRST_WAIT_MS);
    for (let attempt = 0; attempt < 40; attempt += 1) {
      expect(backoff(attempt, 0.999)).toBeLessThanOrEqual(MAX_WAIT_MS);
      expect(backoff(attempt + 1, 0)).toBeGreaterThanOrEqual(backoff(attempt, 0));
    }
  });
});

describe("close codes", () => {
  it.each([4000, 4001, 4002, 4499, 1001, 1006, 1011, 1012, 1013])("%i comes back", (code) => {
    expect(shouldReconnect(code)).toBe(true);
  });
  it.each([4500, 4501, 4502, 4999, 1002, 1003, 1007, 1008, 1009, 1010])("%i does not", (code) => {
    expect(shouldReconnect(code)).toBe(false);
  });
});

describe("Reconnector", () => {
  it("waits longer after each failure and connects when the wait is over", () => {
    const { clock, reconnector, connects, states } = setup();
    reconnector.start();
    expect(connects()).toBe(1);
    reconnector.closed(1006, "lost");
    const first = states.at(-1)!;
    expect(first).toMatchObject({ phase: "waiting", attempt: 1, untilTs: clock.now() + 375 });
    clock.advance(374);
    expect(connects()).toBe(1);
    clock.advance(1);
    expect(connects()).toBe(2);
    reconnector.closed(1006, "lost");
    clock.advance(375);
    expect(connects()).toBe(2);
    clock.advance(375);
    expect(connects()).toBe(3);
  });

  it("starts from the first wait again only after a connection that lasted", () => {
    const { clock, reconnector, states } = setup();
    reconnector.start();
    for (let i = 0; i < 4; i += 1) {
      reconnector.closed(1006, "lost");
      clock.advance(MAX_WAIT_MS);
    }
    reconnector.opened();
    clock.advance(100);
    reconnector.closed(4000, "restarting");
    expect(states.at(-1)).toMatchObject({ attempt: 5 });
    clock.advance(MAX_WAIT_MS);
    reconnector.opened();
    clock.advance(60_000);
    reconnector.closed(4000, "restarting");
    expect(states.at(-1)).toMatchObject({ attempt: 1 });
  });

  it("stays away when told not to come back, until a person asks", () => {
    const { clock, reconnector, connects, states } = setup();
    reconnector.start();
    reconnector.closed(4501, "You were removed.");
    expect(states.at(-1)).toEqual({ phase: "stopped", why: "You were removed." });
    clock.advance(10 * MAX_WAIT_MS);
    expect(connects()).toBe(1);
    reconnector.now();
    expect(connects()).toBe(2);
  });

  it("tries at once when asked, and once only", () => {
    const { clock, reconnector, connects } = setup();
    reconnector.start();
    reconnector.closed(1006, "lost");
    reconnector.now();
    reconnector.now();
    clock.advance(MAX_WAIT_MS);
    expect(connects()).toBe(2);
  });
});
