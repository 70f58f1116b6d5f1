/** A command inside the conversation: who ran it, what it prints, how it ended. */
import { memo } from "preact/compat";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ExecItem } from "../model/room";
import { durationInWords, elapsedInWords, endInWords, markOf, whyInWords } from "../model/words";
import { skewMs } from "../state/app";
import type { CommandOutput } from "../state/outputs";
import type { RoomSession } from "../state/room-session";
import { copy, fill, now, tell } from "../state/ui";
import type { ExecExited } from "../protocol";
import { textOf } from "../term/cells";
import { StateMark } from "./face";
import { Icon } from "./icons";
import { Output } from "./output";
import { TerminalCard } from "./terminal-card";
import { useVisible } from "./use-visible";

/** Output up to this many bytes is read back without being asked for. */
const READ_UNASKED_BYTES = 64 * 1024;

interface Props {
  item: ExecItem;
  session: RoomSession;
}

export const ExecCard = memo(function ExecCard({ item, session }: Props) {
  return item.started.pty ? <TerminalCard item={item} session={session} output={session.outputs.of(item.id)} /> : <CommandCard item={item} session={session} />;
});

function CommandCard({ item, session }: Props) {
  const card = useRef<HTMLDivElement>(null);
  const visible = useVisible(card);
  const output = session.outputs.of(item.id);
  const end = item.exited;
  // Here and not in an effect: plain output is there with the first drawing, so nothing jumps.
  if (end) output.exited(end);
  useEffect(() => {
    // Lost on the way, or told only in part: small enough to simply have it.
    if (visible && end && wantsReading(output, end)) void output.loadAll(session.read);
  }, [visible, output, end]);
  return (
    <div ref={card} tabIndex={-1} class={`exec ${end ? markOf(end) : "go"}`} data-testid="exec" data-exec={item.id} data-state={end ? (end.ok ? "ok" : (end.reason ?? "failed")) : "running"}>
      <Top item={item} session={session} output={output} />
      <Output output={output} session={session} running={!end} />
      {end && <Foot end={end} output={output} />}
    </div>
  );
}

function wantsReading(output: CommandOutput, end: ExecExited): boolean {
  const sizes = Object.values(end.bytes ?? {});
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const mixed = !output.fed && sizes.filter((size) => size > 0).length > 1;
  return (output.partial || mixed) && total <= READ_UNASKED_BYTES;
}

function Top({ item, session, output }: Props & { output: CommandOutput }) {
  const [open, setOpen] = useState(false);
  const end = item.exited;
  const { command, cwd } = item.started;
  const long = command.includes("\n") || command.length > 60;
  return (
    <div class="top">
      <StateMark mark={end ? markOf(end) : "go"} />
      <code
        class={`cmd${open ? " open" : ""}`}
        data-testid="exec-command"
        title={cwd ? `in ${cwd}` : undefined}
        onClick={() => long && !getSelection()?.toString() && setOpen(!open)}
      >
        {command}
      </code>
      {long && (
        <button class={`icon-only unfold${open ? " open" : ""}`} aria-expanded={open} title={open ? "Show one line" : "Show the whole command"} aria-label="Whole command" onClick={() => setOpen(!open)}>
          <Icon name="chevron" />
        </button>
      )}
      {end ? <EndMeta end={end} /> : <Elapsed item={item} />}
      {end && (
        <span class="tools">
          <button class="icon-only" title="Copy output" aria-label="Copy output" onClick={() => void copy(outputText(output), "Output copied")}>
            <Icon name="copy" />
          </button>
          <button class="icon-only" title="Put this command into the composer" aria-label="Use this command again" onClick={() => (fill.value = { text: command, mode: "run" })}>
            <Icon name="again" />
          </button>
        </span>
      )}
      {!end && <StopButton item={item} session={session} />}
    </div>
  );
}

export function StopButton({ item, session }: Props) {
  const [asked, setAsked] = useState(false);
  const stop = (): void => {
    setAsked(true);
    session.stop(item.id).catch((error: unknown) => {
      setAsked(false);
      tell(error);
    });
  };
  return (
    <button class="small" data-testid="exec-stop" disabled={asked} onClick={stop}>
      {asked ? "Stopping…" : "Stop"}
    </button>
  );
}

/** Reads the clock itself, so that a tick draws this alone. */
export function Elapsed({ item }: { item: ExecItem }) {
  return (
    <span class="meta num" aria-live="off" data-testid="exec-elapsed">
      <span class="opt">running </span>
      {elapsedInWords(now.value - skewMs.value - item.ts)}
    </span>
  );
}

export function EndMeta({ end }: { end: ExecExited }) {
  return (
    <span class="meta num" data-testid="exec-end">
      <span class={end.ok ? "opt" : "why"}>{endInWords(end)}</span>
      <span class={end.ok ? "opt" : undefined}> · </span>
      <span data-testid="exec-duration">{durationInWords(end.durationMs)}</span>
    </span>
  );
}

function Foot({ end, output }: { end: ExecExited; output: CommandOutput }) {
  const why = whyInWords(end);
  return (
    <>
      {why && (
        <p class="because" data-testid="exec-reason">
          {why}
        </p>
      )}
      {output.problem.value && (
        <p class="problem pad" role="status">
          The rest of the output could not be read: {output.problem.value}
        </p>
      )}
    </>
  );
}

function outputText(output: CommandOutput): string {
  const { settled, live } = output.rows();
  return [...settled, ...live].map((row) => ("runs" in row ? textOf(row) : "…")).join("\n");
}
