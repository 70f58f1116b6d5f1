/** One turn of the agent, as one block: its words as they come, its commands where it wanted them,
 * what it asks people, how it ended. */
import { useComputed } from "@preact/signals";
import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import { execIn, type TurnItem } from "../model/room";
import { isOpen, partsOf, type Decided, type Part, type Turn } from "../model/turns";
import { countOf } from "../model/words";
import type { RoomSession } from "../state/room-session";
import { tell } from "../state/ui";
import { Approval, DeniedCard } from "./approval";
import { ExecCard } from "./exec-card";
import { StateMark } from "./face";
import { Icon } from "./icons";
import { Markdown } from "./markdown";
import { Reactions } from "./message";

interface Props {
  item: TurnItem;
  session: RoomSession;
}

/** The text of a turn comes in pieces: it is drawn silently here and told once by the room. */
export const TurnBlock = memo(function TurnBlock({ item, session }: Props) {
  const turn = useComputed(() => session.state.value.turns.get(item.id)).value;
  if (!turn) return null;
  const open = isOpen(turn);
  return (
    <div class={`turn${open ? " open" : ""}`} aria-live="off" aria-busy={open} tabIndex={-1} data-testid="turn" data-turn={turn.id} data-status={turn.status}>
      {partsOf(turn).map((part) => (
        <PartView key={part.key} part={part} turn={turn} session={session} />
      ))}
      {open ? <Progress turn={turn} session={session} /> : <End turn={turn} />}
      {turn.message && <Reactions id={turn.message.id} session={session} />}
    </div>
  );
});

function PartView({ part, turn, session }: { part: Part; turn: Turn; session: RoomSession }) {
  switch (part.kind) {
    case "text":
      return (
        <div data-testid="turn-text">
          <Markdown text={part.text} />
        </div>
      );
    case "run":
      return <Run exec={part.exec} allowed={part.allowed} session={session} />;
    case "wanted":
      if (part.decided?.decision === "deny" || !isOpen(turn)) return <DeniedCard wanted={part.wanted} decided={part.decided} />;
      if (!part.wanted.asks) return null; // its refusal follows
      if (part.decided) return <Allowed decided={part.decided} waiting />;
      return <Approval wanted={part.wanted} turn={turn} session={session} />;
  }
}

function Run({ exec, allowed, session }: { exec: string; allowed: Decided | undefined; session: RoomSession }) {
  const item = useComputed(() => execIn(session.state.value, exec)).value;
  return (
    <>
      {item ? <ExecCard item={item} session={session} /> : <p class="soft">A command; load older messages to see it.</p>}
      {allowed && <Allowed decided={allowed} />}
    </>
  );
}

function Allowed({ decided, waiting = false }: { decided: Decided; waiting?: boolean }) {
  return (
    <p class="verdict" data-testid="decided">
      <Icon name="check" /> Allowed by <bdi>{decided.by.name}</bdi>
      {decided.decision === "always" && ", like all that follow in this answer"}
      {waiting && ", starting…"}
    </p>
  );
}

const DOING: { readonly [status: string]: string } = {
  thinking: "Thinking…",
  approval: "Waiting for an answer",
  running: "Running a command",
};

function doing(turn: Turn): string {
  if (turn.status === "retrying") return turn.retry?.message ?? "Trying again…";
  if (turn.status === "thinking" && turn.text) return "Working on it…";
  return DOING[turn.status] ?? "Working on it…";
}

function Progress({ turn, session }: { turn: Turn; session: RoomSession }) {
  return (
    <div class="row progress" data-testid="turn-progress">
      {turn.status === "approval" ? <span class="dot wait" aria-hidden="true" /> : <StateMark mark="go" />}
      <span class="soft" data-testid="turn-doing">
        {doing(turn)}
      </span>
      <StopTurn turn={turn} session={session} />
    </div>
  );
}

export function StopTurn({ turn, session, words = "Stop" }: { turn: Turn; session: RoomSession; words?: string }) {
  const [asked, setAsked] = useState(false);
  const stop = (): void => {
    setAsked(true);
    session.stopTurn(turn.id).catch((error: unknown) => {
      setAsked(false);
      tell(error);
    });
  };
  const whom = turn.by ? ` the answer to ${turn.by.name}` : " the answer";
  return (
    <button class="small" data-testid="turn-stop" disabled={asked} aria-label={words === "Stop" ? `Stop${whom}` : undefined} onClick={stop}>
      {asked ? "Stopping…" : words}
    </button>
  );
}

function End({ turn }: { turn: Turn }) {
  const end = turn.end;
  const { inputTokens = 0, outputTokens = 0, commands = 0 } = end?.usage ?? {};
  const tokens = inputTokens + outputTokens;
  const trouble = turn.status !== "done";
  return (
    <>
      {trouble && (
        <p class={`outcome ${turn.status}`} data-testid="turn-outcome">
          <Icon name={turn.status === "stopped" ? "stop" : "warn"} />
          <span>
            {end?.message ?? (turn.status === "stopped" ? "This was stopped." : "This ended without an answer.")}
            {turn.message?.partial && <span class="soft"> What stands above is not finished.</span>}
          </span>
        </p>
      )}
      {tokens > 0 && (
        <p class="usage" data-testid="turn-usage" title={`${inputTokens.toLocaleString("en")} in, ${outputTokens.toLocaleString("en")} out`}>
          {countOf(tokens, "token")}
          {commands > 0 && ` · ${countOf(commands, "command")}`}
        </p>
      )}
    </>
  );
}
