/** What the page knows of one room: a pure reducer over the log's events, in any order of pages.
 * Output of commands is not here (model/output), nor anything about how it looks. */
import type {
  ExecExited,
  ExecStarted,
  Joined,
  LogEvent,
  Message,
  Participant,
  Position,
  Sandbox,
} from "../protocol";

export interface MessageItem {
  kind: "message";
  offset: number;
  id: string;
  ts: number;
  by: Participant;
  text: string;
  edited: boolean;
  deleted: boolean;
  replyTo?: string | undefined;
  turn?: string | undefined;
}

export interface ExecItem {
  kind: "exec";
  offset: number;
  id: string;
  ts: number;
  by: Participant;
  started: ExecStarted;
  exited?: ExecExited | undefined;
}

export type Item = MessageItem | ExecItem;

/** Who reacted with what: message id, emoji, participant id → the offset that said so last. */
type Mark = { readonly offset: number; readonly on: boolean };
export type Marks = ReadonlyMap<string, ReadonlyMap<string, Mark>>;
export type Reactions = ReadonlyMap<string, Marks>;

export interface RoomState {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly epoch: string;
  /** The last offset seen; -1 before the first join. */
  readonly offset: number;
  /** The lowest offset loaded; what lies before it is a page away. */
  readonly from: number;
  readonly more: boolean;
  readonly joined: boolean;
  readonly items: readonly Item[];
  readonly reactions: Reactions;
  readonly exits: ReadonlyMap<string, ExecExited>;
  readonly edits: ReadonlyMap<string, { offset: number; text?: string }>;
  readonly participants: readonly Participant[];
  readonly typing: ReadonlyMap<string, Participant>;
  readonly sandbox: Sandbox | undefined;
}

export function emptyRoom(id: string, name = id): RoomState {
  return {
    id,
    name,
    description: "",
    epoch: "",
    offset: -1,
    from: 0,
    more: false,
    joined: false,
    items: [],
    reactions: new Map(),
    exits: new Map(),
    edits: new Map(),
    participants: [],
    typing: new Map(),
    sandbox: undefined,
  };
}

export function positionOf(room: RoomState): Position | undefined {
  return room.offset < 0 || !room.epoch ? undefined : { epoch: room.epoch, offset: room.offset };
}

/** Whether a live event leaves a hole before it, so that the room must be joined again. */
export function leavesHole(room: RoomState, offset: number): boolean {
  return room.joined && offset > room.offset + 1;
}

export function applyJoined(room: RoomState, frame: Joined): RoomState {
  const fresh = frame.resumed ? room : { ...emptyRoom(room.id, room.name), description: room.description };
  const based: RoomState = {
    ...fresh,
    epoch: frame.epoch,
    joined: true,
    participants: uniquePeople(frame.participants),
    typing: new Map(),
    sandbox: frame.sandbox ?? fresh.sandbox,
  };
  if (frame.resumed) return based;
  const first = frame.events[0]?.offset ?? frame.offset + 1;
  const state = applyEvents(based, frame.events);
  const running = frame.execs.map((exec) => exec.started).filter((started) => started.offset < first);
  // A command that began before the loaded page still belongs on it: it is going on now.
  const items = [...running.map(execItem), ...state.items].sort(byOffset);
  const more = (frame.oldest ?? 0) < first && first > 0;
  return { ...state, items: dedupe(items), offset: Math.max(state.offset, frame.offset), from: first, more };
}

export function applyPage(room: RoomState, events: readonly LogEvent[], more: boolean): RoomState {
  const offset = room.offset;
  const state = applyEvents(room, events);
  const from = Math.min(room.from, ...events.map((event) => event.offset));
  return { ...state, offset, from, more };
}

/** One live event. Those at or below the position were seen and change nothing. */
export function applyLive(room: RoomState, event: LogEvent): RoomState {
  return event.offset <= room.offset ? room : applyEvents(room, [event]);
}

/** A persisted event of a type the page does not know still moves the position. */
export function advance(room: RoomState, offset: number): RoomState {
  return offset > room.offset ? { ...room, offset } : room;
}

function applyEvents(room: RoomState, events: readonly LogEvent[]): RoomState {
  if (events.length === 0) return room;
  const draft = { ...room, items: [...room.items] };
  for (const event of events) {
    apply(draft, event);
    draft.offset = Math.max(draft.offset, event.offset);
  }
  draft.items = dedupe(draft.items.sort(byOffset));
  return draft;
}

type Draft = { -readonly [K in keyof RoomState]: RoomState[K] } & { items: Item[] };

function apply(draft: Draft, event: LogEvent): void {
  switch (event.type) {
    case "message":
      draft.items.push(withEdit(messageItem(event), draft.edits.get(event.id)));
      draft.typing = without(draft.typing, event.by.id);
      return;
    case "message.edited":
      // Without its text an edit was overtaken; what stands now is told by the message.
      return event.text === undefined ? undefined : edit(draft, event.id, { offset: event.offset, text: event.text });
    case "message.deleted":
      return edit(draft, event.id, { offset: event.offset });
    case "message.reacted":
      draft.reactions = react(draft.reactions, event.id, event.emoji, event.by.id, { offset: event.offset, on: event.on });
      return;
    case "exec.started":
      draft.items.push(execItem(event, draft.exits.get(event.exec)));
      return;
    case "exec.exited":
      draft.exits = new Map(draft.exits).set(event.exec, event);
      draft.items = draft.items.map((item) =>
        item.kind === "exec" && item.id === event.exec ? { ...item, exited: event } : item,
      );
      return;
    case "sandbox":
      if (event.offset >= draft.offset) draft.sandbox = event;
      return;
    case "room.updated":
      if (event.offset >= draft.offset) {
        draft.name = event.name;
        draft.description = event.description ?? "";
      }
      return;
    case "room.cleared":
      draft.items = draft.items.filter((item) => item.offset > event.offset);
      draft.more = false;
      return;
  }
}

function messageItem(event: Message): MessageItem {
  return {
    kind: "message",
    offset: event.offset,
    id: event.id,
    ts: event.ts,
    by: event.by,
    text: event.text ?? "",
    edited: event.editedTs != null,
    deleted: event.deleted === true,
    replyTo: event.replyTo ?? undefined,
    turn: event.turn ?? undefined,
  };
}

function execItem(started: ExecStarted, exited?: ExecExited | number): ExecItem {
  const end = typeof exited === "object" ? exited : undefined;
  return { kind: "exec", offset: started.offset, id: started.exec, ts: started.ts, by: started.by, started, exited: end };
}

type Edit = { offset: number; text?: string };

function withEdit(item: MessageItem, change: Edit | undefined): MessageItem {
  if (!change || item.deleted) return item;
  if (change.text === undefined) return { ...item, text: "", deleted: true };
  return { ...item, text: change.text, edited: true };
}

function edit(draft: Draft, id: string, change: Edit): void {
  const known = draft.edits.get(id);
  if (known && known.offset > change.offset) return;
  draft.edits = new Map(draft.edits).set(id, change);
  draft.items = draft.items.map((item) =>
    item.kind === "message" && item.id === id ? withEdit(item, change) : item,
  );
}

function react(all: Reactions, id: string, emoji: string, who: string, mark: Mark): Reactions {
  const ofMessage = new Map(all.get(id));
  const ofEmoji = new Map(ofMessage.get(emoji));
  const known = ofEmoji.get(who);
  // Pages come newest first, so an older mark may arrive after a newer one.
  if (known && known.offset > mark.offset) return all;
  ofEmoji.set(who, mark);
  return new Map(all).set(id, ofMessage.set(emoji, ofEmoji));
}

export function withPerson(room: RoomState, person: Participant, present: boolean): RoomState {
  const others = room.participants.filter((one) => one.id !== person.id);
  const typing = present ? room.typing : without(room.typing, person.id);
  return { ...room, typing, participants: present ? [...others, person] : others };
}

export function withTyping(room: RoomState, person: Participant, on: boolean): RoomState {
  const typing = on ? new Map(room.typing).set(person.id, person) : without(room.typing, person.id);
  return typing === room.typing ? room : { ...room, typing };
}

export function runningExecs(room: RoomState): readonly ExecItem[] {
  return room.items.filter((item): item is ExecItem => item.kind === "exec" && !item.exited);
}

/** Emoji and who reacted with it, in the order of the first one. */
export function reactionsOf(marks: Marks | undefined): readonly { emoji: string; who: readonly string[] }[] {
  return [...(marks ?? [])]
    .map(([emoji, marks]) => ({ emoji, who: [...marks].filter(([, mark]) => mark.on).map(([who]) => who) }))
    .filter(({ who }) => who.length > 0);
}

function without<V>(map: ReadonlyMap<string, V>, key: string): ReadonlyMap<string, V> {
  if (!map.has(key)) return map;
  const copy = new Map(map);
  copy.delete(key);
  return copy;
}

function uniquePeople(people: readonly Participant[]): Participant[] {
  return [...new Map(people.map((one) => [one.id, one])).values()];
}

const byOffset = (a: Item, b: Item): number => a.offset - b.offset;

/** Of items at one offset keeps the one that knows more (an end, an edit). */
function dedupe(sorted: Item[]): Item[] {
  const out: Item[] = [];
  for (const item of sorted) {
    const last = out[out.length - 1];
    if (last?.offset !== item.offset) out.push(item);
    else if (item.kind === "exec" && item.exited) out[out.length - 1] = item;
  }
  return out;
}
