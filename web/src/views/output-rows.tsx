/** Rows of output as elements: settled ones are drawn once. Colours are classes or set through the
 * CSSOM, so the page needs no inline style. */
import { memo } from "preact/compat";
import { bytesInWords, leftOutInWords } from "../model/words";
import type { Line, Run } from "../term/cells";
import type { Row } from "../term/kept";

function RunView({ run }: { run: Run }) {
  if (!run.cls && !run.fg && !run.bg) return <>{run.text}</>;
  const style = run.fg || run.bg ? { color: run.fg, backgroundColor: run.bg } : undefined;
  return (
    <span class={run.cls || undefined} style={style}>
      {run.text}
    </span>
  );
}

export function LineView({ line }: { line: Line }) {
  return (
    <div class="line">
      {line.runs.length === 0 ? "\n" : line.runs.map((run, at) => <RunView key={at} run={run} />)}
    </div>
  );
}

export interface GapActions {
  load: () => void;
  loading: boolean;
}

export const RowView = memo(function RowView({ row, gap }: { row: Row; gap: GapActions }) {
  if ("runs" in row) return <LineView line={row} />;
  if ("dropped" in row) return <div class="hole">… {leftOutInWords(row.dropped, row.bytes)} left out here to keep the page light</div>;
  const size = bytesInWords(row.gap.bytes);
  if (!row.gap.kept) return <div class="hole">… {size} not shown and no longer kept</div>;
  return (
    <button class="hole" data-testid="load-gap" disabled={gap.loading} onClick={gap.load}>
      … {size} not shown · {gap.loading ? "Loading…" : "Load"}
    </button>
  );
});

/** Lines per block; the browser skips the layout of blocks that are not on the screen. */
const BLOCK_LINES = 100;

const Block = memo(
  function Block({ rows, gap }: { rows: readonly Row[]; gap: GapActions }) {
    return (
      <div class="block" style={{ containIntrinsicSize: `auto ${rows.length * 19}px` }}>
        {rows.map((row) => (
          <RowView key={row.id} row={row} gap={gap} />
        ))}
      </div>
    );
  },
  (a, b) => a.rows.length === b.rows.length && a.rows[0]?.id === b.rows[0]?.id && a.rows.at(-1)?.id === b.rows.at(-1)?.id && a.gap === b.gap,
);

export function Blocks({ rows, gap }: { rows: readonly Row[]; gap: GapActions }) {
  const blocks = [];
  for (let at = 0; at < rows.length; at += BLOCK_LINES) blocks.push(<Block key={at} rows={rows.slice(at, at + BLOCK_LINES)} gap={gap} />);
  return <>{blocks}</>;
}
