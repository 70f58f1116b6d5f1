/** A room's middle: header, conversation, who is typing, composer. */
import { useComputed } from "@preact/signals";
import { currentTurn, type Turn } from "../model/turns";
import type { Problem, RoomSession } from "../state/room-session";
import { rooms } from "../state/rooms";
import { linkOf, onLink } from "../state/route";
import { copy, drawer } from "../state/ui";
import { Composer } from "./composer";
import { Face } from "./face";
import { Icon } from "./icons";
import { NewRoom } from "./new-room";
import { TerminalDock } from "./terminal";
import { Timeline } from "./timeline";

/** Faces in the header; more are a number. */
const FACES = 5;

function useName(session: RoomSession): { name: string; description: string } {
  const listed = rooms.value.find((room) => room.id === session.id);
  const state = useComputed(() => session.state.value.name).value;
  const description = useComputed(() => session.state.value.description).value;
  // A room.updated is newer than the list; without one the state's name is the id.
  return { name: state !== session.id ? state : listed?.name || session.id, description: description || listed?.description || "" };
}

export function Room({ session }: { session: RoomSession }) {
  const { name, description } = useName(session);
  const trouble = session.problem.value;
  const problem = trouble?.passing ? undefined : trouble;
  return (
    <main class="room" id="main" tabIndex={-1}>
      <header class="bar">
        <DrawerButton which="rooms" label="Rooms" />
        <h1 data-testid="room-title">{name}</h1>
        <p class="cut soft">{description}</p>
        {!problem && (
          <>
            <Faces session={session} />
            <button class="invite" aria-label="Invite: copy the link" data-testid="invite" onClick={() => void copy(linkOf(session.id), "Link copied. Whoever opens it is in this room.")}>
              <Icon name="link" /> <span class="word">Invite</span>
            </button>
            <DrawerButton which="details" label="People and sandbox" />
          </>
        )}
      </header>
      {problem ? (
        <RoomProblem session={session} problem={problem} />
      ) : (
        <>
          {trouble && (
            <p class="banner" role="status" data-testid="room-trouble">
              {trouble.message} Trying again…
            </p>
          )}
          <Timeline session={session} />
          {session.terminal.value && <TerminalDock session={session} />}
          <TypingLine session={session} />
          <Composer key={session.id} session={session} label={name} />
        </>
      )}
    </main>
  );
}

export function DrawerButton({ which, label }: { which: "rooms" | "details"; label: string }) {
  const open = drawer.value === which;
  return (
    <button class={`icon-only only-narrow ${which}`} data-testid={`open-${which}`} aria-label={label} aria-expanded={open} aria-controls={which} onClick={() => (drawer.value = open ? undefined : which)}>
      <Icon name={which === "rooms" ? "menu" : "people"} />
    </button>
  );
}

function Faces({ session }: { session: RoomSession }) {
  // The agent, which is always here, last.
  const here = useComputed(() => session.state.value.participants).value;
  const people = [...here].sort((a, b) => Number(a.kind === "agent") - Number(b.kind === "agent"));
  const words = `${people.length} here: ${people.map((one) => one.name).join(", ")}`;
  return (
    <span class="faces" role="img" aria-label={words} title={words} data-testid="faces">
      {people.slice(0, FACES).map((person) => (
        <Face key={person.id} person={person} />
      ))}
      {people.length > FACES && <span class="face more">+{people.length - FACES}</span>}
    </span>
  );
}

function TypingLine({ session }: { session: RoomSession }) {
  const typing = useComputed(() => session.state.value.typing).value;
  const [one, two, ...more] = [...typing.values()].map((person) => <bdi>{person.name}</bdi>);
  return (
    <div class="typing">
      <AgentNow session={session} />
      <span class="cut" data-testid="typing">
        {one && !two && <>{one} is typing…</>}
        {two && more.length === 0 && (
          <>
            {one} and {two} are typing…
          </>
        )}
        {more.length > 0 && `${typing.size} people are typing…`}
      </span>
      <span role="status" data-testid="passing">
        {one ? "" : session.passing.value}
      </span>
    </div>
  );
}

const NOW: { readonly [status: string]: string } = {
  thinking: "is thinking for",
  running: "runs a command for",
  retrying: "tries again for",
};

/** What the agent does, when its turn may have scrolled away; and what a screen reader is told. */
function AgentNow({ session }: { session: RoomSession }) {
  const turn = useComputed(() => currentTurn(session.state.value.turns)).value;
  return (
    <>
      {turn && (
        <span class="agent-now" data-testid="agent-now">
          <span class="cut">
            {session.agentName} {turn.status === "approval" ? "needs an answer" : (NOW[turn.status] ?? "works for")}
            {turn.status !== "approval" && <bdi> {turn.by?.name ?? "someone"}</bdi>}
          </span>
          <button class="link" data-testid="agent-show" onClick={() => show(turn)}>
            {turn.status === "approval" ? "Answer it" : "Show"}
          </button>
        </span>
      )}
      <span class="sr" role="status" data-testid="agent-told">
        {session.told.value}
      </span>
    </>
  );
}

function show(turn: Turn): void {
  const block = document.querySelector<HTMLElement>(`[data-turn="${CSS.escape(turn.id)}"]`);
  const button = block?.querySelector<HTMLElement>("[data-testid=approval-allow]");
  (button ?? block)?.scrollIntoView({ block: "center" });
  (button ?? block)?.focus({ preventScroll: true });
}

const TITLES: { readonly [code: string]: string } = {
  unknown_room: "There is no room here",
  deleted: "This room was deleted",
  removed: "You were taken out of this room",
  forbidden: "This room is not open to you",
};

function RoomProblem({ session, problem }: { session: RoomSession; problem: Problem }) {
  const unknown = problem.code === "unknown_room" || problem.code === "deleted";
  const gone = problem.code === "deleted";
  const makeable = unknown && /^[a-z0-9][a-z0-9_-]{0,63}$/u.test(session.id);
  return (
    <div class="welcome inner" data-testid="room-problem" data-code={problem.code}>
      <div class="sheet">
        <h2>{TITLES[problem.code] ?? "This room can't be opened"}</h2>
        <p class="soft">
          {gone ? (
            <>
              <b>{session.id}</b> was removed while you were here. You can make a new room in its place.
            </>
          ) : unknown ? (
            <>
              No room is called <b>{session.id}</b>. The link may be mistyped, or the room was removed.
            </>
          ) : (
            problem.message
          )}
        </p>
        {makeable && (
          <NewRoom
            id={session.id}
            initial={session.id}
            onDone={() => {
              session.problem.value = undefined;
              void session.join();
            }}
          />
        )}
        <p>
          {!unknown && (
            <button onClick={() => ((session.problem.value = undefined), void session.join())}>Try again</button>
          )}{" "}
          <a href="/" onClick={(event) => onLink(event, undefined)}>
            Back to all rooms
          </a>
        </p>
      </div>
    </div>
  );
}
