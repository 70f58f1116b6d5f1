/** How a room's agent may run commands, and what it has cost in tokens here. */
import { useState } from "preact/hooks";
import { tokensOf } from "../model/turns";
import { countOf } from "../model/words";
import type { AgentFacts } from "../protocol";
import type { RoomSession } from "../state/room-session";
import { setApproval } from "../state/rooms";
import { tell } from "../state/ui";

const CHOICES = [
  ["auto", "Run at once"],
  ["ask", "Ask a member first"],
  ["off", "Never"],
] as const;

export function AgentSettings({ session, agent }: { session: RoomSession; agent: AgentFacts }) {
  // What was chosen here stands until the room says the same, or it could not be set.
  const [wanted, setWanted] = useState<{ value: string; instead: string }>();
  const waits = wanted !== undefined && wanted.instead === agent.approval;
  const shown = waits ? wanted.value : agent.approval;
  const tokens = tokensOf(session.state.value.turns);
  const choose = (approval: string): void => {
    setWanted({ value: approval, instead: agent.approval });
    setApproval(session.id, approval).catch((error: unknown) => {
      setWanted(undefined);
      tell(error);
    });
  };
  return (
    <>
      <fieldset class="approval-mode" aria-busy={waits} data-testid="approval-mode" data-mode={agent.approval}>
        <legend>Commands that {agent.name} wants</legend>
        {CHOICES.map(([value, words]) => (
          <label key={value}>
            <input type="radio" name="approval" value={value} data-testid={`approval-mode-${value}`} checked={shown === value} onChange={() => choose(value)} />
            {words}
          </label>
        ))}
      </fieldset>
      {tokens > 0 && (
        <p class="soft tokens" data-testid="tokens">
          {countOf(tokens, "token")} used by the answers shown here
        </p>
      )}
    </>
  );
}
