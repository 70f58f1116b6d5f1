/** From a room's items to the rows of its timeline: days, groups, what is still being sent. Pure. */
import type { Item } from "./room";

/** Messages of one author this close together stand under one name. */
export const GROUP_WITHIN_MS = 5 * 60_000;

export type Row =
  | { kind: "day"; key: string; ts: number }
  | { kind: "item"; key: string; item: Item; head: boolean };

export function rowsOf(items: readonly Item[], dayOf: (ts: number) => string): Row[] {
  const rows: Row[] = [];
  let day = "";
  let before: Item | undefined;
  for (const item of items) {
    // The agent's commands stand in its turn.
    if (item.kind === "exec" && item.started.turn) continue;
    const today = dayOf(item.ts);
    if (today !== day) {
      rows.push({ kind: "day", key: `day-${today}`, ts: item.ts });
      before = undefined;
    }
    day = today;
    rows.push({ kind: "item", key: `${item.kind}-${item.id}`, item, head: !sameGroup(before, item) });
    before = item;
  }
  return rows;
}

function sameGroup(before: Item | undefined, item: Item): boolean {
  return before !== undefined && item.kind !== "turn" && before.by.id === item.by.id && item.ts - before.ts < GROUP_WITHIN_MS;
}

export function dayOf(ts: number): string {
  const date = new Date(ts);
  return `${date.getFullYear()}-${date.getMonth() + 1}-${date.getDate()}`;
}
