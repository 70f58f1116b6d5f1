/** Joins changes: the first after a pause is drawn with the next frame, a flood at most so often. */
import type { Signal } from "@preact/signals";

export function redraw(version: Signal<number>, everyMs: number): () => void {
  let asked = false;
  let lastTs = 0;
  const draw = (): void => {
    asked = false;
    lastTs = performance.now();
    version.value += 1;
  };
  return () => {
    if (asked) return;
    asked = true;
    const wait = everyMs - (performance.now() - lastTs);
    if (wait <= 0) requestAnimationFrame(draw);
    else setTimeout(() => requestAnimationFrame(draw), wait);
  };
}
