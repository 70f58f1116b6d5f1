/** The list of rooms over the HTTP API. */
import { signal } from "@preact/signals";
import type { RoomInfo } from "../protocol";

export const rooms = signal<readonly RoomInfo[]>([]);
export const roomsError = signal<string | undefined>(undefined);
export const roomsLoaded = signal(false);

/** How often the list is read while the page is looked at, in milliseconds. */
const REFRESH_EVERY_MS = 15_000;

/** Words for a person out of `{error, details?}`. */
async function failureOf(response: Response): Promise<string> {
  try {
    const body = (await response.json()) as { error?: string; details?: { [field: string]: string[] } };
    const details = Object.values(body.details ?? {}).flat().join(" ");
    return details || body.error || `The server answered ${response.status}.`;
  } catch {
    return `The server answered ${response.status}.`;
  }
}

export async function refreshRooms(): Promise<void> {
  try {
    const response = await fetch("/api/rooms", { headers: { accept: "application/json" } });
    if (!response.ok) throw new Error(await failureOf(response));
    const body = (await response.json()) as { rooms?: RoomInfo[] };
    rooms.value = body.rooms ?? [];
    roomsError.value = undefined;
  } catch (error) {
    roomsError.value = error instanceof TypeError ? "The server can't be reached." : (error as Error).message;
  } finally {
    roomsLoaded.value = true;
  }
}

/** Creates a room and returns its id; throws with words for a person. */
export async function createRoom(name: string, id?: string): Promise<string> {
  let response: Response;
  try {
    response = await fetch("/api/rooms", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(id ? { id, name } : { name }),
    });
  } catch {
    throw new Error("The server can't be reached. Try again in a moment.");
  }
  if (!response.ok) throw new Error(await failureOf(response));
  const room = (await response.json()) as RoomInfo;
  await refreshRooms();
  return room.id;
}

/** How the agent's commands are allowed in a room; throws with words for a person. */
export async function setApproval(room: string, approval: string): Promise<void> {
  let response: Response;
  try {
    response = await fetch(`/api/rooms/${encodeURIComponent(room)}`, {
      method: "PATCH",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ agent: { approval } }),
    });
  } catch {
    throw new Error("The server can't be reached. Try again in a moment.");
  }
  if (!response.ok) throw new Error(await failureOf(response));
  await refreshRooms();
}

export function watchRooms(): void {
  void refreshRooms();
  const look = (): void => {
    if (!document.hidden) void refreshRooms();
  };
  addEventListener("focus", look);
  document.addEventListener("visibilitychange", look);
  setInterval(look, REFRESH_EVERY_MS);
}

/** The status of a room's sandbox, from whichever shape the list carries. */
export function sandboxStatus(room: RoomInfo): string | undefined {
  return typeof room.sandbox === "string" ? room.sandbox : (room.sandbox?.status ?? undefined);
}
