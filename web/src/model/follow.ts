/** Whether a scrolled box keeps to its end: told by the reader's hand, not by where the box happens
 * to stand. A scroll event comes late, when the content may have grown again. Pure. */

/** Closer to the end than this, in pixels, counts as at the end. */
const AT_END_PX = 60;
/** A wheel, a finger or a key moves the box within this time. */
const HAND_MS = 300;

/** A box's `scrollTop`, `scrollHeight` and `clientHeight`, in pixels. */
export interface Place {
  readonly scrollTop: number;
  readonly scrollHeight: number;
  readonly clientHeight: number;
}

export class Follow {
  #following = true;
  #last: Place | undefined;
  #handTs = -Infinity;

  get following(): boolean {
    return this.#following;
  }

  /** The reader moves upwards or drags; the box is left alone while they do. */
  hand(nowTs: number): void {
    this.#handTs = nowTs;
  }

  /** Milliseconds until the reader's hand is off the box; 0 if it is. */
  heldMs(nowTs: number): number {
    return Math.max(0, this.#handTs + HAND_MS - nowTs);
  }

  /** The box was put here by us. */
  put(at: Place): void {
    this.#last = at;
  }

  /** The reader wants the end, whatever came before. */
  toEnd(): void {
    this.#following = true;
    this.#handTs = -Infinity;
  }

  /** A scroll event. A box that went up by itself was cut short by what shrank, and its height
   * tells: only a hand, or a jump over unchanged content, leaves the end. */
  scrolled(at: Place, nowTs: number): void {
    const last = this.#last;
    this.#last = at;
    if (isAtEnd(at)) {
      this.#following = true;
      return;
    }
    if (!last || at.scrollTop >= last.scrollTop) return;
    const held = this.heldMs(nowTs) > 0;
    // What was pushed goes on by itself for a while.
    if (held) this.hand(nowTs);
    if (held || at.scrollHeight === last.scrollHeight) this.#following = false;
  }
}

function isAtEnd({ scrollTop, scrollHeight, clientHeight }: Place): boolean {
  return scrollHeight - scrollTop - clientHeight < AT_END_PX;
}
