/** What is typed into a terminal, sent in order: one piece at a time, each after the last was
 * acknowledged, so that a long paste fits the program's pace. Knows no frames. */

/** UTF-16 units sent at once: well under a frame's limit, also in bytes. */
export const PIECE_CHARS = 16_384;
/** Units that may wait; more is refused and belongs into a file. It stays below what the server holds
 * for a program that does not read: past that, everything else that this page sends would wait, too. */
export const WAITING_CHARS = 200_000;

export class TerminalInput {
  #waiting = "";
  #sending = false;
  #held = true;

  /** `send` rejects with words for a person, which `failed` is told. */
  constructor(
    private readonly send: (data: string) => Promise<unknown>,
    private readonly failed: (error: unknown) => void,
  ) {}

  /** Until the terminal is there, what is typed waits here and keeps nothing else from being sent. */
  ready(): void {
    this.#held = false;
    void this.#next();
  }

  type(data: string): void {
    if (this.#waiting.length + data.length > WAITING_CHARS) return this.failed(new Error("That is too much to paste at once. Put it into a file instead."));
    this.#waiting += data;
    void this.#next();
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  async #next(): Promise<void> {
    if (this.#sending || this.#held) return;
    this.#sending = true;
    try {
      while (this.#waiting) {
        const piece = this.#waiting.slice(0, cutAt(this.#waiting));
        this.#waiting = this.#waiting.slice(piece.length);
        await this.send(piece);
      }
    } catch (error) {
      // What was typed after it would be out of place.
      this.#waiting = "";
      this.failed(error);
    } finally {
      this.#sending = false;
    }
  }
}

/** Not inside a surrogate pair. */
function cutAt(text: string): number {
  if (text.length <= PIECE_CHARS) return text.length;
  const last = text.charCodeAt(PIECE_CHARS - 1);
  return last >= 0xd800 && last < 0xdc00 ? PIECE_CHARS - 1 : PIECE_CHARS;
}
