import { describe, expect, it } from "vitest";
import { Follow, type Place } from "../src/model/follow";

const VIEW_PX = 500;
const at = (scrollTop: number, scrollHeight: number): Place => ({ scrollTop, scrollHeight, clientHeight: VIEW_PX });

function atEndOf(height: number): Follow {
  const follow = new Follow();
  follow.put(at(height - VIEW_PX, height));
  return follow;
}

describe("Follow", () => {
  it("follows though the event of its own scroll comes after the content grew", () => {
    const follow = atEndOf(1000);
    follow.scrolled(at(500, 1327), 0);
    expect(follow.following).toBe(true);
  });
  it("follows where a line went away and others came", () => {
    const follow = atEndOf(1000);
    follow.scrolled(at(440, 1300), 0);
    expect(follow.following).toBe(true);
  });
  it("leaves with the reader's hand, however the content grows", () => {
    const follow = atEndOf(1000);
    follow.hand(0);
    follow.scrolled(at(430, 1300), 50);
    expect(follow.following).toBe(false);
  });
  it("leaves by a jump over content that stays as it is", () => {
    const follow = atEndOf(1000);
    follow.scrolled(at(0, 1000), 0);
    expect(follow.following).toBe(false);
  });
  it("is away until the end is reached or asked for", () => {
    const follow = atEndOf(1000);
    follow.scrolled(at(0, 1000), 0);
    follow.scrolled(at(300, 1400), 10);
    expect(follow.following).toBe(false);
    follow.scrolled(at(880, 1400), 20);
    expect(follow.following).toBe(true);
    follow.scrolled(at(100, 1400), 30);
    follow.toEnd();
    expect(follow.following).toBe(true);
  });
  it("keeps its place a little above the end", () => {
    const follow = atEndOf(1000);
    follow.hand(0);
    follow.scrolled(at(460, 1000), 10);
    expect(follow.following).toBe(true);
  });
  it("leaves the box alone while it is held, and no longer", () => {
    const follow = atEndOf(1000);
    expect(follow.heldMs(1000)).toBe(0);
    follow.hand(1000);
    expect(follow.heldMs(1100)).toBeGreaterThan(0);
    expect(follow.heldMs(2000)).toBe(0);
  });
});
