/** How many columns and rows of the terminal's letters an element has room for. */
import { useEffect, useState } from "preact/hooks";
import type { RefObject } from "preact";
import { MAX_COLS, MAX_ROWS, MIN_COLS, MIN_ROWS } from "../term/grid";

export interface Size {
  cols: number;
  rows: number;
  /** Pixels: the room, and a letter's width at the usual size. */
  width: number;
  height: number;
  letter: number;
}

/** Pixels; the style sheet's `.grid` has the same. */
export const FONT_PX = 13;
export const LINE_PX = 18;
const PADDING_PX = 8;
const SAMPLE = 50;

function letterWidth(host: HTMLElement): number {
  const probe = document.createElement("span");
  probe.className = "grid probe";
  probe.textContent = "M".repeat(SAMPLE);
  host.append(probe);
  const { width } = probe.getBoundingClientRect();
  probe.remove();
  return width / SAMPLE;
}

const within = (value: number, least: number, most: number): number => Math.max(least, Math.min(most, Math.floor(value)));

export function useSize(ref: RefObject<HTMLElement | null>): Size | undefined {
  const [size, setSize] = useState<Size>();
  useEffect(() => {
    const host = ref.current!;
    const letter = letterWidth(host);
    const measure = (): void => {
      const width = host.clientWidth - 2 * PADDING_PX;
      const height = host.clientHeight - 2 * PADDING_PX - keysHeight(host);
      if (width <= 0 || height <= 0 || !letter) return;
      setSize({ width, height, letter, cols: within(width / letter, MIN_COLS, MAX_COLS), rows: within(height / LINE_PX, MIN_ROWS, MAX_ROWS) });
    };
    const observer = new ResizeObserver(measure);
    observer.observe(host);
    measure();
    return () => observer.disconnect();
  }, []);
  return size;
}

/** On a phone a row of keys stands below the screen. */
const keysHeight = (host: HTMLElement): number => (matchMedia(KEYS_SHOWN).matches ? Number.parseFloat(getComputedStyle(host).getPropertyValue("--keys-px")) || 0 : 0);
export const KEYS_SHOWN = "(max-width: 760px), (hover: none)";
