/** The conversation in order, with what is being sent at its end. Keeps to the end until the reader
 * scrolls up (`model/follow.ts`), and keeps the reader's place when older pages come in above. */
import { useComputed } from "@preact/signals";
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Follow, type Place } from "../model/follow";
import type { Item } from "../model/room";
import { dayOf, rowsOf, type Row } from "../model/timeline";
import { me } from "../state/app";
import type { RoomSession } from "../state/room-session";
import { EmptyRoom } from "./empty-room";
import { ExecCard } from "./exec-card";
import { Face } from "./face";
import { Icon } from "./icons";
import { Markdown } from "./markdown";
import { MessageBody } from "./message";
import { OutgoingRow } from "./outgoing";
import { TurnBlock } from "./turn";
import { Waiting } from "./waiting";

/** Closer to the start than this, older events are asked for. */
const NEAR_START_PX = 500;

export function Timeline({ session }: { session: RoomSession }) {
  const items = useComputed(() => session.state.value.items).value;
  const more = useComputed(() => session.state.value.more).value;
  const known = useComputed(() => session.state.value.epoch !== "").value;
  const outgoing = session.outgoing.value;
  const scroll = useScroll(session, items, outgoing.length);
  const rows = rowsOf(items, dayOf);
  const empty = known && rows.length === 0 && outgoing.length === 0 && !more;
  return (
    <div class="log-frame">
      <div class="log" ref={scroll.box} onScroll={scroll.onScroll} data-testid="timeline-scroller" tabIndex={0} role="region" aria-label="Conversation">
        <div class="log-in" ref={scroll.content}>
          <Older session={session} more={more} />
          {!known && <Skeleton />}
          {empty && <EmptyRoom session={session} />}
          <div role="log" aria-live="polite" aria-relevant="additions" aria-label="Messages and commands" data-testid="timeline">
            {rows.map((row) => (
              <RowView key={row.key} row={row} item={row.kind === "item" ? row.item : undefined} head={row.kind === "item" && row.head} session={session} />
            ))}
          </div>
          <Waiting session={session} />
          {outgoing.map((one) => (
            <OutgoingRow key={one.key} one={one} session={session} />
          ))}
        </div>
      </div>
      {scroll.away && (
        <button class="jump latest" data-testid="jump-latest" onClick={scroll.toEnd}>
          <Icon name="down" /> {scroll.fresh > 0 ? `${scroll.fresh} new` : "Jump to latest"}
        </button>
      )}
    </div>
  );
}

function useScroll(session: RoomSession, items: readonly Item[], sending: number) {
  const box = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const [follow] = useState(() => new Follow());
  const anchor = useRef<{ element: Element; top: number } | undefined>(undefined);
  const later = useRef(0);
  const [away, setAway] = useState(false);
  const seen = useRef(0);
  const last = items.at(-1)?.offset ?? -1;

  const stick = (): void => {
    if (!follow.following || !box.current) return;
    clearTimeout(later.current);
    const heldMs = follow.heldMs(performance.now());
    if (heldMs > 0) return void (later.current = window.setTimeout(stick, heldMs));
    box.current.scrollTop = box.current.scrollHeight;
    follow.put(placeOf(box.current));
  };
  const toEnd = (): void => {
    follow.toEnd();
    setAway(false);
    stick();
  };
  const onScroll = (): void => {
    if (!box.current) return;
    follow.scrolled(placeOf(box.current), performance.now());
    setAway(!follow.following);
    anchor.current = firstVisible(box.current);
    if (box.current.scrollTop < NEAR_START_PX) void session.loadOlder();
  };
  // Rows came in above: what the reader looks at stays where it was.
  const first = items[0]?.offset;
  useLayoutEffect(() => {
    const kept = anchor.current;
    if (follow.following) stick();
    else if (kept?.element.isConnected && box.current) {
      box.current.scrollTop += kept.element.getBoundingClientRect().top - kept.top;
      follow.put(placeOf(box.current));
    }
  }, [first]);
  useLayoutEffect(stick, [items]);
  // What a person sent themselves is always brought into view.
  useLayoutEffect(() => {
    if (sending > 0) toEnd();
  }, [sending]);
  useEffect(() => {
    if (follow.following) seen.current = last;
  });
  useEffect(() => {
    const observer = new ResizeObserver(stick);
    observer.observe(box.current!);
    observer.observe(content.current!);
    const unwatch = watchHand(box.current!, () => follow.hand(performance.now()));
    return () => {
      observer.disconnect();
      unwatch();
      clearTimeout(later.current);
    };
  }, []);
  const fresh = away ? items.filter((item) => item.offset > seen.current && item.by.id !== me.peek()?.id && !(item.kind === "exec" && item.started.turn)).length : 0;
  return { box, content, onScroll, toEnd, away, fresh };
}

function placeOf({ scrollTop, scrollHeight, clientHeight }: HTMLElement): Place {
  return { scrollTop, scrollHeight, clientHeight };
}

const UP_KEYS: ReadonlySet<string> = new Set(["ArrowUp", "PageUp", "Home", " "]);

/** Calls `moved` while the reader scrolls up or drags; a wheel downwards leads to the end anyway. */
function watchHand(box: HTMLElement, moved: () => void): () => void {
  const heard: { readonly [name: string]: (event: Event) => void } = {
    wheel: (event) => (event as WheelEvent).deltaY < 0 && moved(),
    touchmove: moved,
    pointermove: (event) => (event as PointerEvent).buttons > 0 && moved(),
    keydown: (event) => UP_KEYS.has((event as KeyboardEvent).key) && moved(),
  };
  for (const [name, listener] of Object.entries(heard)) box.addEventListener(name, listener, { passive: true });
  return () => {
    for (const [name, listener] of Object.entries(heard)) box.removeEventListener(name, listener);
  };
}

function firstVisible(box: HTMLElement): { element: Element; top: number } | undefined {
  const edge = box.getBoundingClientRect().top;
  for (const element of box.querySelectorAll("[data-row]")) {
    const { top, bottom } = element.getBoundingClientRect();
    if (bottom > edge) return { element, top };
  }
  return undefined;
}

function Older({ session, more }: { session: RoomSession; more: boolean }) {
  const loading = session.loadingOlder.value;
  const problem = session.olderProblem.value;
  if (!more) return null;
  return (
    <div class="older">
      {problem && (
        <p class="problem" role="status">
          Older messages could not be loaded: {problem}
        </p>
      )}
      <button class="small" data-testid="load-older" disabled={loading} onClick={() => void session.loadOlder()}>
        {loading ? "Loading older messages…" : "Load older messages"}
      </button>
    </div>
  );
}

function Skeleton() {
  return (
    <div class="skeleton" role="status" aria-label="Opening the room">
      <i />
      <i />
      <i />
    </div>
  );
}

const dayFormat = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const timeFormat = new Intl.DateTimeFormat(undefined, { hour: "numeric", minute: "2-digit" });
const fullFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });

/** The same clock without its "PM": beside a grouped message there is room for little. */
function shortTime(ts: number): string {
  const parts = timeFormat.formatToParts(ts).filter((part) => part.type !== "dayPeriod");
  return parts.map((part) => part.value).join("").trim();
}

function dayInWords(ts: number): string {
  const today = dayOf(Date.now());
  if (dayOf(ts) === today) return "Today";
  return dayOf(ts + 86_400_000) === today ? "Yesterday" : dayFormat.format(ts);
}

function Content({ item, session }: { item: Item; session: RoomSession }) {
  switch (item.kind) {
    case "message":
      return <MessageBody item={item} session={session} />;
    case "exec":
      return <ExecCard item={item} session={session} />;
    case "ask":
      return (
        <div data-testid="ask">
          <Markdown text={asked(item.text, session.agentName)} mention={session.agentName} />
        </div>
      );
    case "turn":
      return <TurnBlock item={item} session={session} />;
  }
}

/** A question reads as if it had been said: to the agent, by its name. */
function asked(text: string, name: string): string {
  return text.trimStart().toLowerCase().startsWith(`@${name.toLowerCase()}`) ? text : `@${name} ${text}`;
}

function Whom({ id, session }: { id: string; session: RoomSession }) {
  const by = useComputed(() => session.state.value.turns.get(id)?.by).value;
  return by ? <small class="whom">answering <bdi>{by.name}</bdi></small> : null;
}

interface RowProps {
  row: Row;
  item: Item | undefined;
  head: boolean;
  session: RoomSession;
}

const RowView = memo(
  function RowView({ row, item, head, session }: RowProps) {
    if (row.kind === "day" || !item) return <div class="day">{row.kind === "day" && dayInWords(row.ts)}</div>;
    const time = (
      <time dateTime={new Date(item.ts).toISOString()} title={fullFormat.format(item.ts)}>
        {head ? timeFormat.format(item.ts) : shortTime(item.ts)}
      </time>
    );
    return (
      <article class={`msg${head ? " head" : ""}`} data-row data-offset={item.offset} data-author={item.by.name} aria-label={`${item.by.name}, ${timeFormat.format(item.ts)}`}>
        {head ? <Face person={item.by} large /> : <span class="gutter">{time}</span>}
        <div class="col">
          {head && (
            <div class="who">
              <bdi>{item.by.name}</bdi>
              {item.kind === "turn" ? <Whom id={item.id} session={session} /> : item.by.kind !== "human" && <small class="tag">{item.by.kind}</small>}
              {time}
            </div>
          )}
          <Content item={item} session={session} />
        </div>
      </article>
    );
  },
  (a, b) => a.item === b.item && a.head === b.head && a.session === b.session && a.row.key === b.row.key,
);
