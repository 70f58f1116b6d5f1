/** Starting and stopping the room's sandbox, and the way to a terminal in it. */
import { useState } from "preact/hooks";
import type { RoomSession } from "../state/room-session";
import { drawer, tell } from "../state/ui";
import { Icon } from "./icons";

const UP = new Set(["running", "starting", "requested"]);

export function SandboxControls({ session, status, busy }: { session: RoomSession; status: string | undefined; busy: number }) {
  const [asked, setAsked] = useState<"start" | "stop">();
  const [sure, setSure] = useState(false);
  const ask = (what: "start" | "stop", request: Promise<unknown>): void => {
    setAsked(what);
    setSure(false);
    request.catch(tell).finally(() => setAsked(undefined));
  };
  const open = (): void => {
    drawer.value = undefined;
    session.terminal.value = "new";
  };
  const up = UP.has(status ?? "");
  const stop = (): void => (busy > 0 && !sure ? setSure(true) : ask("stop", session.stopSandbox()));
  return (
    <div class="row controls">
      <button data-testid="open-terminal" disabled={session.terminal.value === "new"} onClick={open}>
        <Icon name="terminal" /> Open terminal
      </button>
      {up ? (
        <button class={sure ? "bad" : ""} data-testid="sandbox-stop" disabled={asked !== undefined} title="Its files are kept" onClick={stop} onBlur={() => setSure(false)}>
          {asked === "stop" ? "Stopping…" : sure ? `Stop ${busy} running, too` : "Stop"}
        </button>
      ) : (
        <button data-testid="sandbox-start" disabled={asked !== undefined || status === "stopping"} onClick={() => ask("start", session.startSandbox())}>
          {asked === "start" ? "Starting…" : "Start"}
        </button>
      )}
    </div>
  );
}
