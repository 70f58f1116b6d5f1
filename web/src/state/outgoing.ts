/** What a person sent that is not in the log yet. Pure: a list and the events that change it. */
import type { Mode } from "../model/composer";
import type { LogEvent } from "../protocol";

export interface Outgoing {
  readonly key: string;
  readonly mode: Mode;
  readonly text: string;
  readonly ts: number;
  readonly replyTo?: string | undefined;
  readonly state: "sending" | "failed";
  readonly problem?: string;
  /** Set by the ack: where it stands in the log, so that it goes when that is reached. */
  readonly offset?: number;
}

export type OutgoingList = readonly Outgoing[];

export function change(list: OutgoingList, key: string, to: Partial<Outgoing>): OutgoingList {
  return list.map((one) => (one.key === key ? { ...one, ...to } : one));
}

export const without = (list: OutgoingList, key: string): OutgoingList => list.filter((one) => one.key !== key);

/** Takes out what the log now holds, told by key, or by offset where the event has no key. */
export function settle(list: OutgoingList, events: readonly LogEvent[], me: string | undefined): OutgoingList {
  if (list.length === 0) return list;
  const mine = events.filter((event) => event.by.id === me);
  const keys = new Set(mine.map((event) => event.key));
  const offsets = new Set(mine.map((event) => event.offset));
  const left = list.filter((one) => !keys.has(one.key) && !(one.offset !== undefined && offsets.has(one.offset)));
  return left.length === list.length ? list : left;
}
