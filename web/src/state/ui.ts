/** Small state of the page itself: drawers, theme, the ticking clock, what is put into the composer. */
import { signal } from "@preact/signals";
import type { Mode } from "../model/composer";
import * as storage from "./storage";

export type Drawer = "rooms" | "details" | undefined;
export const drawer = signal<Drawer>(undefined);

/** Text that something outside the composer puts into it. */
export const fill = signal<{ text: string; mode: Mode } | undefined>(undefined);

/** A short word for a person, such as "Link copied"; it goes by itself. */
export const notice = signal<{ text: string; bad: boolean } | undefined>(undefined);
const NOTICE_MS = 5000;
let noticeEnds: ReturnType<typeof setTimeout> | undefined;

export function say(text: string, bad = false): void {
  notice.value = { text, bad };
  clearTimeout(noticeEnds);
  noticeEnds = setTimeout(() => (notice.value = undefined), NOTICE_MS);
}

/** Tells a person why something they asked for did not happen. */
export const tell = (error: unknown): void => say((error as Error).message, true);

export async function copy(text: string, done: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say(done);
  } catch {
    say(`Copying is blocked by the browser. Copy it by hand: ${text.slice(0, 200)}`, true);
  }
}

/** The time for clocks that tick in seconds: twice as often, so that none lags by a whole one. */
const TICK_MS = 500;
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, TICK_MS);

export type Theme = "light" | "dark" | "system";
const stored = storage.read("theme");
export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");

export function setTheme(to: Theme): void {
  theme.value = to;
  storage.write("theme", to === "system" ? undefined : to);
  if (to === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = to;
}
