/** The terminal that is looked at: its screen, and the keyboard that types into it. Everybody in the
 * room sees the same one and may type; its size is the opener's. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useComputed } from "@preact/signals";
import { execIn, type ExecItem } from "../model/room";
import { endInWords } from "../model/words";
import { link, me } from "../state/app";
import type { RoomSession } from "../state/room-session";
import type { SharedTerminal } from "../state/terminals";
import { tell } from "../state/ui";
import { StopButton } from "./exec-card";
import { Icon } from "./icons";
import { TerminalKeys } from "./terminal-keys";
import { TerminalScreen } from "./terminal-screen";
import { useSize, type Size } from "./use-size";

export function TerminalDock({ session }: { session: RoomSession }) {
  const at = session.terminal.value;
  const exec = typeof at === "object" ? at.exec : undefined;
  const item = useComputed(() => {
    const looked = session.terminal.value;
    return typeof looked === "object" ? execIn(session.state.value, looked.exec) : undefined;
  }).value;
  const well = useRef<HTMLDivElement>(null);
  const size = useSize(well);
  const started = useRef(false);
  useEffect(() => {
    if (at !== "new") started.current = false;
    if (at !== "new" || !size || started.current) return;
    started.current = true;
    session.openTerminal(size.cols, size.rows).catch(tell);
  }, [at, size]);
  const terminal = exec && item ? session.terminalOf(exec) : undefined;
  const close = (): void => {
    session.closeTerminal();
    document.getElementById("composer")?.focus();
  };
  return (
    <section class="dock" aria-label="Terminal" data-testid="terminal" data-exec={exec} data-state={item?.exited ? "ended" : terminal?.alive.value ? "running" : "starting"}>
      <DockBar item={item} terminal={terminal} session={session} onClose={close} />
      <div class="well" ref={well}>
        {item && terminal ? (
          <Live key={exec} item={item} terminal={terminal} session={session} size={size} onLeave={close} />
        ) : (
          <p class="waits" role="status">
            {exec && item?.exited ? "This terminal has ended." : "Starting a terminal…"}
          </p>
        )}
      </div>
    </section>
  );
}

function DockBar({ item, terminal, session, onClose }: { item: ExecItem | undefined; terminal: SharedTerminal | undefined; session: RoomSession; onClose: () => void }) {
  void terminal?.version.value;
  const end = item?.exited;
  return (
    <div class="dock-bar">
      <Icon name="terminal" />
      <span class="cut">
        <b>{terminal?.grid.title || "Terminal"}</b>
        {item && (
          <span class="soft">
            {" "}
            · <bdi>{item.by.id === me.value?.id ? "yours" : item.by.name}</bdi>
            {end ? ` · ended: ${endInWords(end)}` : ", shared with everyone here"}
          </span>
        )}
      </span>
      {link.value.phase !== "open" && (
        <span class="problem" role="status" data-testid="terminal-offline">
          Not connected
        </span>
      )}
      <span class="soft leave">
        <kbd>Ctrl</kbd>+<kbd>Shift</kbd>+<kbd>Esc</kbd> leaves
      </span>
      {item && !end && <StopButton item={item} session={session} />}
      <button class="icon-only" data-testid="terminal-close" title="Close this view; the terminal goes on" aria-label="Close this view" onClick={onClose}>
        <Icon name="close" />
      </button>
    </div>
  );
}

function Live({ item, terminal, session, size, onLeave }: { item: ExecItem; terminal: SharedTerminal; session: RoomSession; size: Size | undefined; onLeave: () => void }) {
  const mine = item.by.id === me.value?.id;
  const running = useComputed(() => session.state.value.sandbox?.status === "running").value;
  const [ctrl, setCtrl] = useState(false);
  useEffect(() => {
    // A program that prints nothing can be typed into as well, once its sandbox is there.
    if (running) terminal.begins();
  }, [running, terminal]);
  const alive = terminal.alive.value;
  useEffect(() => {
    if (!mine || !size || !alive || item.exited) return;
    const wait = setTimeout(() => terminal.resize(size.cols, size.rows), RESIZE_WAIT_MS);
    return () => clearTimeout(wait);
  }, [mine, size, alive, item.exited]);
  const input = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => input.current?.focus({ preventScroll: true }), []);
  return (
    <>
      <TerminalScreen terminal={terminal} input={input} ended={item.exited !== undefined} fit={mine ? undefined : size} ctrl={ctrl} setCtrl={setCtrl} onLeave={onLeave} />
      {!alive && !item.exited && (
        <p class="waits over" role="status">
          {running ? "Starting a terminal…" : "Starting the sandbox…"}
        </p>
      )}
      {!item.exited && <TerminalKeys terminal={terminal} input={input} ctrl={ctrl} setCtrl={setCtrl} />}
    </>
  );
}

/** Windows are dragged through many sizes; programs redraw for each. */
const RESIZE_WAIT_MS = 120;
