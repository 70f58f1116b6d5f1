/** The right side: who is here, how the sandbox stands, what runs. */
import type { ComponentChildren } from "preact";
import { runningExecs } from "../model/room";
import { elapsedInWords } from "../model/words";
import { agentOf } from "../state/agent";
import { me, skewMs } from "../state/app";
import type { RoomSession } from "../state/room-session";
import { drawer, now, tell } from "../state/ui";
import type { Participant, Sandbox } from "../protocol";
import { CloseDrawer } from "./rooms-panel";
import { AgentSettings } from "./agent-settings";
import { Face, StateMark, StatusDot, statusInWords } from "./face";
import { SandboxControls } from "./sandbox-controls";

export function DetailsPanel({ session }: { session: RoomSession }) {
  const room = session.state.value;
  const agent = agentOf(session);
  const running = runningExecs(room);
  return (
    <aside id="details" tabIndex={-1} class={`panel right${drawer.value === "details" ? " open" : ""}`} aria-label="People and sandbox" data-testid="details-panel">
      <CloseDrawer />
      <Section title="People">
        <ul class="people" data-testid="people">
          {sorted(room.participants).map((person) => (
            <Person key={person.id} person={person} approval={agent?.approval} />
          ))}
        </ul>
        {agent && <AgentSettings session={session} agent={agent} />}
      </Section>
      <Section title="Sandbox">
        <SandboxState sandbox={room.sandbox} busy={running.length > 0} />
        <SandboxControls session={session} status={room.sandbox?.status} busy={running.length} />
      </Section>
      <Section title="Running">
        {running.length === 0 && <p class="soft">Nothing is running.</p>}
        <ul class="running" data-testid="running">
          {running.map((exec) => (
            <li key={exec.id} data-testid="running-exec">
              <StateMark mark="go" />
              {exec.started.pty ? (
                <button class="link cut" data-testid="running-open" onClick={() => ((drawer.value = undefined), (session.terminal.value = { exec: exec.id }))}>
                  Terminal
                </button>
              ) : (
                <code class="cut" title={exec.started.command}>
                  {exec.started.command}
                </code>
              )}
              <span class="soft num">{elapsedInWords(now.value - skewMs.value - exec.ts)}</span>
              <button class="small" data-testid="running-stop" aria-label={`Stop ${exec.started.command.slice(0, 40)}`} onClick={() => void session.stop(exec.id).catch(tell)}>
                Stop
              </button>
            </li>
          ))}
        </ul>
      </Section>
    </aside>
  );
}

function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

/** You first, then people, bots and the agent, each by name. */
function sorted(people: readonly Participant[]): Participant[] {
  const rank = (one: Participant): number => (one.id === me.value?.id ? 0 : one.kind === "human" ? 1 : one.kind === "bot" ? 2 : 3);
  return [...people].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
}

const ASKS: { readonly [approval: string]: string } = { auto: "runs commands", ask: "asks first", off: "only talks" };

function wordsOf(person: Participant, approval: string | undefined): string {
  if (person.id === me.value?.id) return "you";
  if (person.kind === "agent") return ASKS[approval ?? ""] ?? "agent";
  if (person.kind === "bot") return "bot";
  return person.role === "owner" ? "owner" : "";
}

function Person({ person, approval }: { person: Participant; approval: string | undefined }) {
  const words = wordsOf(person, approval);
  return (
    <li data-testid="person" data-name={person.name}>
      <Face person={person} />
      <span class="cut">{person.name}</span>
      <small>{words}</small>
    </li>
  );
}

function SandboxState({ sandbox, busy }: { sandbox: Sandbox | undefined; busy: boolean }) {
  const status = sandbox?.status;
  const idle = !status || status === "stopped";
  return (
    <div data-testid="sandbox" data-status={status ?? "none"}>
      <p class="row">
        <StatusDot status={status} /> {statusInWords(status)}
      </p>
      {idle && <p class="soft">It starts with the first command.{sandbox?.workspaceSaved ? " Your files are kept." : ""}</p>}
      {sandbox && (
        <dl class="kv">
          <dt>Image</dt>
          <dd>{sandbox.image}</dd>
          <dt>Size</dt>
          <dd>{sandbox.instanceType}</dd>
          {status === "stopped" && (
            <>
              <dt>Workspace</dt>
              <dd data-testid="workspace">{sandbox.workspaceSaved ? "saved" : "not saved"}</dd>
            </>
          )}
          {sandbox.expectedStopAt != null && status === "running" && !busy && (
            <>
              <dt>Sleeps</dt>
              <dd>{sleepsInWords(sandbox.expectedStopAt - now.value)}</dd>
            </>
          )}
        </dl>
      )}
      {sandbox?.lastError && (
        <p class="problem" data-testid="sandbox-error">
          {sandbox.lastError}
        </p>
      )}
    </div>
  );
}

function sleepsInWords(ms: number): string {
  if (ms <= 0) return "when idle";
  return ms < 60_000 ? "in under a minute" : `in ${Math.ceil(ms / 60_000)} min if idle`;
}
