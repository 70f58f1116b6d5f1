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
  const [busy, setBusy] = useState(false);
  const tokens = tokensOf(session.state.value.turns);
  const choose = (approval: string): void => {
    setBusy(true);
    setApproval(session.id, approval)
      .catch(tell)
      .finally(() => setBusy(false));
  };
  return (
    <>
      <fieldset class="approval-mode" disabled={busy} data-testid="approval-mode" data-mode={agent.approval}>
        <legend>Commands that {agent.name} wants</legend>
        {CHOICES.map(([value, words]) => (
          <label key={value}>
            <input type="radio" name="approval" value={value} data-testid={`approval-mode-${value}`} checked={agent.approval === value} onChange={() => choose(value)} />
            {words}
          </label>
        ))}
      </fieldset>
      {tokens > 0 && (
        <p class="soft tokens" data-testid="tokens">
          {countOf(tokens, "token")} used in what is shown here
        </p>
      )}
    </>
  );
}
