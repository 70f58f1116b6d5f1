/** A terminal inside the conversation: the way into it while it runs, what it printed afterwards. */
import { useState } from "preact/hooks";
import type { ExecItem } from "../model/room";
import { markOf } from "../model/words";
import type { CommandOutput } from "../state/outputs";
import type { RoomSession } from "../state/room-session";
import { Elapsed, EndMeta, StopButton } from "./exec-card";
import { StateMark } from "./face";
import { Output } from "./output";

export function TerminalCard({ item, session, output }: { item: ExecItem; session: RoomSession; output: CommandOutput }) {
  const [shown, setShown] = useState(false);
  const end = item.exited;
  const at = session.terminal.value;
  const open = typeof at === "object" && at.exec === item.id;
  const show = (): void => {
    setShown(!shown);
    if (!shown && output.partial) void output.loadAll(session.read);
  };
  const look = (): void => (open ? session.closeTerminal() : void (session.terminal.value = { exec: item.id }));
  // A shell is left by its last command's code, which tells nothing of the terminal.
  const mark = end && (end.ok || end.reason === "command_failed") ? "ok" : end ? markOf(end) : "go";
  return (
    <div tabIndex={-1} class={`exec ${mark}`} data-testid="terminal-card" data-exec={item.id} data-state={end ? "ended" : "running"}>
      <div class="top">
        <StateMark mark={mark} />
        <span class="cmd name">
          Terminal <code class="soft">{item.started.command}</code>
        </span>
        {end ? <EndMeta end={end} /> : <Elapsed item={item} />}
        {!end && (
          <button class="small" data-testid="terminal-open" aria-expanded={open} onClick={look}>
            {open ? "Hide" : "Open"}
          </button>
        )}
        {!end && <StopButton item={item} session={session} />}
        {end && (
          <button class="small" data-testid="terminal-printed" aria-expanded={shown} onClick={show}>
            {shown ? "Hide" : "What it printed"}
          </button>
        )}
      </div>
      {end && shown && <Output output={output} session={session} running={false} />}
      {end && !end.ok && end.reason !== "command_failed" && end.message && <p class="because">{end.message}</p>}
    </div>
  );
}
