/** Whether an element is on the screen, or near it; once true it stays so. */
import { useEffect, useState } from "preact/hooks";
import type { RefObject } from "preact";

const NEAR = "400px";
const waiting = new Map<Element, () => void>();
let observer: IntersectionObserver | undefined;

function watch(element: Element, seen: () => void): () => void {
  observer ??= new IntersectionObserver(
    (entries) => {
      for (const entry of entries) if (entry.isIntersecting) waiting.get(entry.target)?.();
    },
    { rootMargin: NEAR },
  );
  waiting.set(element, seen);
  observer.observe(element);
  return () => {
    waiting.delete(element);
    observer?.unobserve(element);
  };
}

export function useVisible(ref: RefObject<Element | null>): boolean {
  const [visible, setVisible] = useState(false);
  useEffect(() => {
    if (visible || !ref.current) return;
    return watch(ref.current, () => setVisible(true));
  }, [visible]);
  return visible;
}
