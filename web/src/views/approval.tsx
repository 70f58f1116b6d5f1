/** A command the agent wants to run: the card that asks people, and what is left of it after a no. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Decided, Turn, Wanted } from "../model/turns";
import { clockInWords, namingUnseen } from "../model/words";
import { skewMs } from "../state/app";
import type { RoomSession } from "../state/room-session";
import { now, tell } from "../state/ui";
import { StateMark } from "./face";

interface Props {
  wanted: Wanted;
  turn: Turn;
  session: RoomSession;
}

export function Approval({ wanted, turn, session }: Props) {
  const [sent, setSent] = useState(false);
  const [denying, setDenying] = useState(false);
  const card = useRef<HTMLDivElement>(null);
  const deny = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => () => focusTurn(card.current), []);
  const decide = (decision: "allow" | "deny" | "always", note?: string): void => {
    setSent(true);
    session.decide(turn.id, wanted.call, decision, note).catch((error: unknown) => {
      setSent(false);
      tell(error);
    });
  };
  const keep = (): void => {
    setDenying(false);
    requestAnimationFrame(() => deny.current?.focus());
  };
  return (
    <div ref={card} class="approve" role="group" aria-label="A command that needs an answer" data-testid="approval" data-call={wanted.call}>
      <p class="asks">
        <b>{session.agentName} wants to run</b> <span class="soft">· needs an answer from a member</span>
      </p>
      <pre data-testid="approval-command" tabIndex={0} aria-label="The command">
        <Exactly text={wanted.command} />
      </pre>
      {denying ? (
        <DenyBox sent={sent} onDeny={(note) => decide("deny", note)} onKeep={keep} />
      ) : (
        <div class="row">
          <button class="primary" data-testid="approval-allow" disabled={sent} onClick={() => decide("allow")}>
            Allow
          </button>
          <button ref={deny} data-testid="approval-deny" disabled={sent} onClick={() => setDenying(true)}>
            Deny…
          </button>
          <button data-testid="approval-always" disabled={sent} onClick={() => decide("always")}>
            Allow all this turn
          </button>
          <TimeLeft toTs={wanted.expiresTs} />
        </div>
      )}
    </div>
  );
}

/** The card goes, whoever decided: who was in it by keyboard goes on from its turn. */
function focusTurn(card: HTMLElement | null): void {
  if (card?.contains(document.activeElement)) card.closest<HTMLElement>(".turn")?.focus({ preventScroll: true });
}

/** What runs is what is read: characters that hide are named. */
function Exactly({ text }: { text: string }) {
  return (
    <>
      {namingUnseen(text).map((part, at) => (part.unseen ? <mark key={at} class="unseen">{part.text}</mark> : part.text))}
    </>
  );
}

function DenyBox({ sent, onDeny, onKeep }: { sent: boolean; onDeny: (note: string) => void; onKeep: () => void }) {
  const [note, setNote] = useState("");
  const box = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => box.current?.focus(), []);
  return (
    <form
      class="row deny"
      onSubmit={(event) => {
        event.preventDefault();
        onDeny(note.trim());
      }}
      onKeyDown={(event) => event.key === "Escape" && onKeep()}
    >
      <input ref={box} data-testid="deny-note" aria-label="Why not? The agent is told (optional)" placeholder="Why not? (optional; the agent is told)" maxLength={500} value={note} onInput={(event) => setNote(event.currentTarget.value)} />
      <button class="bad" data-testid="deny-confirm" disabled={sent}>
        Deny
      </button>
      <button type="button" disabled={sent} onClick={onKeep}>
        Back
      </button>
    </form>
  );
}

/** Reads the clock itself, so that a tick draws this alone. */
function TimeLeft({ toTs }: { toTs: number }) {
  const left = toTs - (now.value - skewMs.value);
  return (
    <span class="soft num left" data-testid="approval-left" title="Without an answer by then it is denied">
      {left > 0 ? `${clockInWords(left)} left` : "no time left"}
    </span>
  );
}

/** A command that did not run: denied, refused, or allowed and not come to it any more. */
export function DeniedCard({ wanted, decided }: { wanted: Wanted; decided: Decided | undefined }) {
  return (
    <div class="exec denied" data-testid="denied">
      <div class="top">
        <StateMark mark="stopped" />
        <code class="cmd open">
          <Exactly text={wanted.command} />
        </code>
        <span class="meta">{decided ? "not run" : "not decided"}</span>
      </div>
      {decided && (
        <p class="because" data-testid="decided">
          {decided.by.id === "server" ? (decided.note ?? "No answer in time.") : <By decided={decided} />}
        </p>
      )}
    </div>
  );
}

function By({ decided }: { decided: Decided }) {
  return (
    <>
      {decided.decision === "deny" ? "Denied" : "Allowed"} by <bdi>{decided.by.name}</bdi>
      {decided.note && `: ${decided.note}`}
    </>
  );
}
