/** Questions that wait for the agent, in order, at the end of the conversation. */
import { useComputed } from "@preact/signals";
import { waitingTurns } from "../model/turns";
import type { RoomSession } from "../state/room-session";
import { Face } from "./face";
import { StopTurn } from "./turn";

export function Waiting({ session }: { session: RoomSession }) {
  const turns = useComputed(() => session.state.value.turns).value;
  const waiting = waitingTurns(turns);
  if (waiting.length === 0) return null;
  return (
    <section class="waiting" aria-label={`Questions waiting for ${session.agentName}`} data-testid="waiting">
      <p class="soft">Waiting for {session.agentName}, in this order</p>
      <ol>
        {waiting.map((turn) => (
          <li key={turn.id} data-testid="waiting-turn" data-turn={turn.id}>
            {turn.by && <Face person={turn.by} />}
            <span class="cut">
              <b><bdi>{turn.by?.name}</bdi></b> <span class="soft">{turn.question}</span>
            </span>
            <StopTurn turn={turn} session={session} words="Take back" />
          </li>
        ))}
      </ol>
    </section>
  );
}
