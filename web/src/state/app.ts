/** The page's one model: who we are, the connection, the room that is looked at. Views read its
 * signals and call its functions; nothing here draws. */
import { computed, effect, signal, untracked } from "@preact/signals";
import { Connection, type SocketLike, type RequestError } from "../net/connection";
import type { LinkState } from "../net/reconnector";
import { SUBPROTOCOL_JSON, type Limits, type Participant, type ServerFrame } from "../protocol";
import { RoomSession } from "./room-session";
import { refreshRooms, rooms } from "./rooms";
import { route } from "./route";
import * as storage from "./storage";
import { say } from "./ui";

export const link = signal<LinkState>({ phase: "connecting", attempt: 0 });
export const me = signal<Participant | undefined>(undefined);
export const limits = signal<Partial<Limits>>({});
/** The name given on the first screen; without one (and without a token) that screen is shown. */
export const name = signal(storage.read("name"));
export const nameProblem = signal<string | undefined>(undefined);
/** Whether a session was ever open: before that a lost connection is a first one that is slow. */
export const wasOpen = signal(false);
/** How far this machine's clock is ahead of the server's, in milliseconds, as last seen. */
export const skewMs = signal(0);
/** Messages that came while nobody looked at the page. */
export const unseen = signal(0);

const sessions = new Map<string, RoomSession>();
export const current = signal<RoomSession | undefined>(undefined);
export const knownIn = computed(() => name.value !== undefined);

const socketUrl = (): string => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;

export const connection = new Connection(() => new WebSocket(socketUrl(), SUBPROTOCOL_JSON) as SocketLike, {
  hello: () => {
    const token = storage.read("token");
    return token ? { token } : { name: name.value };
  },
  welcome: (frame) => {
    storage.write("token", frame.token);
    storage.write("name", frame.participant.name);
    me.value = frame.participant;
    limits.value = frame.limits ?? {};
    name.value = frame.participant.name;
    wasOpen.value = true;
    void current.value?.join();
    void refreshRooms();
  },
  refused,
  event: (frame) => {
    // An error that answers no request, such as a question that came on top of too many.
    if (frame.type === "error") say(frame.message, true);
    if ("room" in frame && frame.room) sessions.get(frame.room)?.take(frame);
  },
  state: (state) => {
    link.value = state;
    if (state.phase === "waiting" || state.phase === "stopped") for (const room of sessions.values()) room.disconnected();
  },
});

/** A token the server no longer knows is dropped and the name tried; a refused name is asked again. */
function refused(error: RequestError): boolean {
  if (storage.read("token") && name.value) {
    storage.write("token", undefined);
    return true;
  }
  nameProblem.value = error.message;
  storage.write("name", undefined);
  name.value = undefined;
  return false;
}

export function enter(chosen: string): void {
  nameProblem.value = undefined;
  storage.write("name", chosen);
  name.value = chosen;
  connection.start();
}

/** Ends the session here and forgets who we were. */
export function signOut(): void {
  storage.write("token", undefined);
  storage.write("name", undefined);
  connection.end("Signed out.");
  sessions.clear();
  current.value = undefined;
  me.value = undefined;
  name.value = undefined;
  wasOpen.value = false;
}

export function start(): void {
  if (name.value) connection.start();
  effect(() => {
    const id = knownIn.value ? route.value : undefined;
    untracked(() => lookAt(id));
  });
  effect(() => {
    const state = current.value?.state.value;
    const room = current.value && rooms.value.find((one) => one.id === current.value?.id);
    const title = current.value ? `${room?.name || state?.name || current.value.id} · Duet` : "Duet";
    document.title = unseen.value > 0 ? `(${unseen.value}) ${title}` : title;
  });
  // The list of rooms came: the server is back, so there is nothing left to wait for.
  effect(() => {
    if (rooms.value.length > 0) untracked(() => link.value.phase === "waiting" && connection.reconnector.now());
  });
  addEventListener("online", () => connection.reconnector.now());
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) unseen.value = 0;
  });
}

function lookAt(id: string | undefined): void {
  const before = current.peek();
  if (before?.id === id) return;
  before?.leave();
  if (!id) {
    current.value = undefined;
    return;
  }
  let session = sessions.get(id);
  if (!session) sessions.set(id, (session = new RoomSession(id, connection, () => me.peek(), onNews)));
  current.value = session;
  if (connection.ready) void session.join();
}

function onNews(frame: ServerFrame): void {
  if ("ts" in frame) skewMs.value = Date.now() - frame.ts;
  if (document.hidden && frame.type === "message" && frame.by.id !== me.peek()?.id) unseen.value += 1;
  if (frame.type === "sandbox" || frame.type === "room.updated") void refreshRooms();
}
