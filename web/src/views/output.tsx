/** A command's output inside its card: as high as its content up to a bound, following its end while
 * it runs, its middle folded away once it has ended. */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { countOf, leftOutInWords } from "../model/words";
import type { CommandOutput } from "../state/outputs";
import { tell } from "../state/ui";
import type { RoomSession } from "../state/room-session";
import type { Row } from "../term/kept";
import { Icon } from "./icons";
import { Blocks, RowView, type GapActions } from "./output-rows";

/** Lines of ended output shown without folding, and what stays of longer output. */
const FOLD_ABOVE_LINES = 18;
const FIRST_LINES = 5;
const LAST_LINES = 9;
/** Lines drawn of a running command unless all are asked for. */
const TAIL_LINES = 120;
/** Closer to the end than this, in pixels, counts as at the end. */
const AT_END_PX = 24;

interface Props {
  output: CommandOutput;
  session: RoomSession;
  running: boolean;
}

export function Output({ output, session, running }: Props) {
  const [all, setAll] = useState(false);
  const { settled, live } = output.rows();
  const loading = output.loading.value;
  const gap = useMemo<GapActions>(
    () => ({ loading, load: () => void output.loadAll(session.read).catch(tell) }),
    [output, session, loading],
  );
  const count = settled.length + live.length;
  if (count === 0) return null;
  const body = running ? (
    <Following version={output.version.value}>
      {all ? <Blocks rows={settled} gap={gap} /> : <Tail settled={settled} gap={gap} onAll={() => setAll(true)} />}
      {live.map((row, at) => (
        <RowView key={`live-${at}`} row={row} gap={gap} />
      ))}
    </Following>
  ) : (
    <Ended rows={live.length ? [...settled, ...live] : settled} all={all} setAll={setAll} gap={gap} />
  );
  return (
    <div class="out" aria-live="off" data-testid="exec-output">
      {body}
    </div>
  );
}

function Tail({ settled, gap, onAll }: { settled: readonly Row[]; gap: GapActions; onAll: () => void }) {
  const hidden = Math.max(0, settled.length - TAIL_LINES);
  return (
    <>
      {hidden > 0 && (
        <button class="hole" onClick={onAll}>
          {countOf(hidden, "earlier line")} · Show all
        </button>
      )}
      {settled.slice(hidden).map((row) => (
        <RowView key={row.id} row={row} gap={gap} />
      ))}
    </>
  );
}

function Ended({ rows, all, setAll, gap }: { rows: readonly Row[]; all: boolean; setAll: (all: boolean) => void; gap: GapActions }) {
  if (rows.length <= FOLD_ABOVE_LINES) {
    return (
      <pre class="term">
        {rows.map((row) => (
          <RowView key={row.id} row={row} gap={gap} />
        ))}
      </pre>
    );
  }
  if (all) {
    return (
      <>
        <pre class="term tall" tabIndex={0} aria-label="Output">
          <Blocks rows={rows} gap={gap} />
        </pre>
        <button class="more" onClick={() => setAll(false)}>
          Show less
        </button>
      </>
    );
  }
  const between = folded(rows.slice(FIRST_LINES, -LAST_LINES));
  const showAll = (): void => {
    setAll(true);
    if (between.kept) gap.load();
  };
  const draw = (row: Row) => <RowView key={row.id} row={row} gap={gap} />;
  return (
    <pre class="term">
      {rows.slice(0, FIRST_LINES).map(draw)}
      <button class="fold" data-testid="show-lines" aria-expanded={false} onClick={showAll}>
        {between.words} between · Show all
      </button>
      {rows.slice(-LAST_LINES).map(draw)}
    </pre>
  );
}

/** What lies between, in words, and whether part of it has to be fetched. */
function folded(rows: readonly Row[]): { words: string; kept: boolean } {
  let lines = 0;
  let bytes = 0;
  let kept = false;
  for (const row of rows) {
    if ("gap" in row) {
      bytes += row.gap.bytes;
      kept ||= row.gap.kept;
    } else if ("dropped" in row) {
      lines += row.dropped;
      bytes += row.bytes;
    } else lines += 1;
  }
  return { words: leftOutInWords(lines, bytes), kept };
}

/** Stays at the end until the reader scrolls up, and then offers the way back. */
function Following({ version, children }: { version: number; children: preact.ComponentChildren }) {
  const box = useRef<HTMLPreElement>(null);
  const [following, setFollowing] = useState(true);
  const toEnd = (): void => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  };
  useLayoutEffect(() => {
    if (following) toEnd();
  }, [version, following]);
  const onScroll = (): void => {
    if (!box.current) return;
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    setFollowing(scrollHeight - scrollTop - clientHeight < AT_END_PX);
  };
  return (
    <>
      <pre class="term run" ref={box} onScroll={onScroll} tabIndex={0} aria-label="Output so far">
        {children}
      </pre>
      {!following && (
        <button class="jump" data-testid="output-latest" onClick={() => (setFollowing(true), toEnd())}>
          <Icon name="down" /> Jump to latest
        </button>
      )}
    </>
  );
}
