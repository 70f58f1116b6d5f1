/** What the page knows of one room: a pure reducer over the log's events, in any order of pages.
 * Output of commands is not here (model/output), nor anything about how it looks. */
import type {
  AgentDelta,
  AgentRetry,
  ExecExited,
  ExecStarted,
  Joined,
  LogEvent,
  Message,
  OpenTurn,
  Participant,
  Position,
  Sandbox,
} from "../protocol";
import * as turns from "./turns";

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

/** A question to the agent that no message asked. */
export interface AskItem {
  kind: "ask";
  offset: number;
  id: string;
  ts: number;
  by: Participant;
  text: string;
}

/** Where one of the agent's turns stands; what it is, `turns` tells. */
export interface TurnItem {
  kind: "turn";
  offset: number;
  id: string;
  ts: number;
  by: Participant;
}

export type Item = MessageItem | ExecItem | AskItem | TurnItem;

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
  readonly turns: turns.Turns;
  /** As the room's last change has it; undefined where none was seen. */
  readonly approval: string | undefined;
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
    turns: new Map(),
    approval: undefined,
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
  const fresh = frame.resumed ? room : { ...emptyRoom(room.id, room.name), description: room.description, approval: room.approval };
  const based: RoomState = {
    ...fresh,
    epoch: frame.epoch,
    joined: true,
    participants: uniquePeople(frame.participants),
    typing: new Map(),
    sandbox: frame.sandbox ?? fresh.sandbox,
  };
  if (frame.resumed) return withOpenTurns(based, frame);
  const first = frame.events[0]?.offset ?? frame.offset + 1;
  const state = applyEvents(based, frame.events);
  const running = frame.execs.map((exec) => exec.started).filter((started) => started.offset < first);
  // A command that began before the loaded page still belongs on it: it is going on now.
  const items = [...running.map(execItem), ...state.items].sort(byOffset);
  const more = (frame.oldest ?? 0) < first && first > 0;
  const whole = { ...state, items: dedupe(items), offset: Math.max(state.offset, frame.offset), from: first, more };
  return withOpenTurns(whole, frame);
}

/** The turns that are open now; one whose start lies on an older page stands at the end. */
function withOpenTurns(room: RoomState, frame: Joined): RoomState {
  const draft = { ...room, items: [...room.items] };
  for (const { started } of frame.execs) {
    if (!started.turn) continue;
    draft.turns = turns.applyRan(draft.turns, started, false);
    place(draft, started.turn, started.offset, started.ts, started.by);
  }
  for (const view of frame.turns as OpenTurn[]) {
    draft.turns = turns.applyOpen(draft.turns, view, frame.offset);
    const known = draft.items.some((item) => item.kind === "turn" && item.id === view.turn);
    if (view.status !== "queued" && !known) place(draft, view.turn, frame.offset, Date.now());
  }
  draft.items = dedupe(draft.items.sort(byOffset));
  return draft;
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
      if (event.turn && event.by.kind === "agent") {
        draft.turns = turns.applySaid(draft.turns, event);
        return place(draft, event.turn, event.offset, event.ts, event.by);
      }
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
      if (!event.turn) return;
      draft.turns = turns.applyRan(draft.turns, event, event.offset > draft.offset);
      return place(draft, event.turn, event.offset, event.ts, event.by);
    case "exec.exited":
      draft.exits = new Map(draft.exits).set(event.exec, event);
      draft.turns = turns.applyRanEnd(draft.turns, event);
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
        draft.approval = event.agent?.approval ?? draft.approval;
      }
      return;
    case "agent.queued":
      draft.turns = turns.applyTurnEvent(draft.turns, event, event.offset > draft.offset);
      if (!event.replyTo) draft.items.push({ kind: "ask", offset: event.offset, id: event.turn, ts: event.ts, by: event.by, text: event.question });
      return;
    case "agent.started":
    case "agent.approval":
    case "agent.decided":
    case "agent.finished":
      draft.turns = turns.applyTurnEvent(draft.turns, event, event.offset > draft.offset);
      return place(draft, event.turn, event.offset, event.ts, event.by.kind === "agent" ? event.by : undefined);
    case "room.cleared":
      draft.items = draft.items.filter((item) => item.offset > event.offset);
      draft.turns = new Map([...draft.turns].filter(([, turn]) => turns.isOpen(turn)));
      draft.more = false;
      return;
  }
}

/** The agent as the room has it, or by its usual name where it is not known (any more). */
export function agentIn(room: Pick<RoomState, "participants">): Participant {
  return room.participants.find((one) => one.kind === "agent") ?? { id: "agent", name: "duet", kind: "agent" };
}

/** A turn stands where its first event stands that is known here. */
function place(draft: Draft, id: string, offset: number, ts: number, by?: Participant): void {
  const known = draft.items.findIndex((item) => item.kind === "turn" && item.id === id);
  const item = draft.items[known];
  if (!item) draft.items.push({ kind: "turn", offset, id, ts, by: by ?? agentIn(draft) });
  else if (item.offset > offset) draft.items[known] = { ...item, offset, ts };
}

export function withDelta(room: RoomState, frame: AgentDelta): RoomState {
  const after = turns.applyDelta(room.turns, frame);
  return after === room.turns ? room : { ...room, turns: after };
}

export function withRetry(room: RoomState, frame: AgentRetry): RoomState {
  return { ...room, turns: turns.applyRetry(room.turns, frame) };
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
  if (!present) return { ...room, typing, participants: others };
  const known = others.length < room.participants.length;
  const all = known ? room.participants.map((one) => (one.id === person.id ? person : one)) : [...others, person];
  return { ...room, typing, participants: all };
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

/** Of one item told twice keeps the one that knows more (an end). */
function dedupe(sorted: Item[]): Item[] {
  const places = new Map<string, number>();
  const out: Item[] = [];
  for (const item of sorted) {
    const key = `${item.kind}-${item.id}`;
    const at = places.get(key);
    if (at === undefined) places.set(key, out.push(item) - 1);
    else if (item.kind === "exec" && item.exited) out[at] = item;
  }
  return out;
}

const execsOf = new WeakMap<readonly Item[], ReadonlyMap<string, ExecItem>>();

/** A command by its id; one index serves all that ask about the same items. */
export function execIn(room: RoomState, exec: string): ExecItem | undefined {
  let index = execsOf.get(room.items);
  if (!index) execsOf.set(room.items, (index = new Map(room.items.flatMap((item) => (item.kind === "exec" ? [[item.id, item] as const] : [])))));
  return index.get(exec);
}
