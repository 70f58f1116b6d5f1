/** What is on its way, and what could not be sent. */
import { current } from "../state/app";
import type { Outgoing } from "../state/outgoing";
import type { RoomSession } from "../state/room-session";
import { fill } from "../state/ui";
import { Markdown } from "./markdown";

export function OutgoingRow({ one, session }: { one: Outgoing; session: RoomSession }) {
  const failed = one.state === "failed";
  const takeBack = (): void => {
    session.discard(one.key);
    if (current.value === session) fill.value = { text: one.text, mode: one.mode };
  };
  return (
    <div class={`pending${failed ? " failed" : ""}`} data-testid="outgoing" data-state={one.state}>
      {one.mode === "run" ? <code class="line-cmd">{one.text}</code> : <Markdown text={one.mode === "ask" ? `@${session.agentName} ${one.text}` : one.text} mention={session.agentName} />}
      {failed ? (
        <div class="row">
          <p class="problem" role="alert">
            Not sent. {one.problem}
          </p>
          <button class="small" data-testid="retry" onClick={() => session.retry(one.key)}>
            Try again
          </button>
          <button class="small" onClick={takeBack}>
            Edit
          </button>
          <button class="small" onClick={() => session.discard(one.key)}>
            Discard
          </button>
        </div>
      ) : (
        <small>sending…</small>
      )}
    </div>
  );
}
