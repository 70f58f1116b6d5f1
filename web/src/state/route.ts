/** Where the page is: `/` or `/r/{roomId}`. */
import { signal } from "@preact/signals";

const ROOM_PATH = /^\/r\/([^/]+)\/?$/u;

export function roomOf(path: string): string | undefined {
  const match = ROOM_PATH.exec(path);
  if (!match) return undefined;
  try {
    return decodeURIComponent(match[1]!);
  } catch {
    return match[1];
  }
}

export const pathOf = (room: string | undefined): string => (room ? `/r/${encodeURIComponent(room)}` : "/");
export const linkOf = (room: string): string => new URL(pathOf(room), location.href).href;

export const route = signal<string | undefined>(undefined);

export function go(room: string | undefined): void {
  if (room !== route.value) history.pushState(null, "", pathOf(room));
  route.value = room;
}

export function watchRoute(): void {
  route.value = roomOf(location.pathname);
  addEventListener("popstate", () => (route.value = roomOf(location.pathname)));
}

/** For links that a plain click follows inside the page; any other click is the browser's. */
export function onLink(event: MouseEvent, room: string | undefined): void {
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  go(room);
}
