/** Numbers and reasons in words. Pure. */
import type { ExecExited } from "../protocol";

export function bytesInWords(bytes: number): string {
  if (bytes < 1024) return `${bytes} ${bytes === 1 ? "byte" : "bytes"}`;
  const units = ["KiB", "MiB", "GiB"];
  let value = bytes / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 10 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function durationInWords(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** For a clock that ticks once a second: no tenths, which would jump about. */
export function elapsedInWords(ms: number): string {
  return ms < 60_000 ? `${Math.max(0, Math.floor(ms / 1000))} s` : durationInWords(ms);
}

/** Time that is left, as a clock: "1:52". */
export function clockInWords(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** Characters that are not seen, or that turn the order of others around: a command that is to be
 * allowed must not look like another one. Tabs and line feeds are seen. */
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

/** Text in parts, the unseen characters named. */
export function namingUnseen(text: string): readonly { text: string; unseen: boolean }[] {
  const parts: { text: string; unseen: boolean }[] = [];
  let from = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (match.index > from) parts.push({ text: text.slice(from, match.index), unseen: false });
    parts.push({ text: `U+${match[0].codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`, unseen: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) parts.push({ text: text.slice(from), unseen: false });
  return parts;
}

export function countOf(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

/** What is left out: "12 lines", "12 lines and 3.0 KiB". */
export function leftOutInWords(lines: number, bytes: number): string {
  return bytes > 0 ? `${countOf(lines, "line")} and ${bytesInWords(bytes)}` : countOf(lines, "line");
}

export type Mark = "ok" | "bad" | "stopped";

/** The short word beside a card's mark, such as "exit 1" or "timed out". */
export function endInWords(end: ExecExited): string {
  if (end.ok) return "exit 0";
  switch (end.reason) {
    case "command_failed":
      return end.signal ? `killed by ${end.signal}` : `exit ${end.exitCode ?? "?"}`;
    case "timeout":
      return "timed out";
    case "cancelled":
      return "stopped";
    case "out_of_memory":
      return "out of memory";
    case "output_limit":
      return "too much output";
    case "sandbox_terminated":
      return "sandbox ended";
    case "sandbox_unavailable":
      return "no sandbox";
    case "internal_error":
      return "internal error";
    default:
      return end.reason ? end.reason.replaceAll("_", " ") : "failed";
  }
}

export function markOf(end: ExecExited): Mark {
  if (end.ok) return "ok";
  return end.reason === "cancelled" ? "stopped" : "bad";
}

/** A sentence for ends that a mark and a number do not explain; undefined for a plain exit code. */
export function whyInWords(end: ExecExited): string | undefined {
  if (end.ok || (end.reason === "command_failed" && !end.signal)) return undefined;
  return end.message || undefined;
}

export function initials(name: string): string {
  const words = name.trim().split(/[\s._-]+/u).filter(Boolean);
  const letters = words.length > 1 ? [...words[0]!][0]! + [...words[1]!][0]! : [...(words[0] ?? "?")].slice(0, 2).join("");
  return letters.toUpperCase();
}

/** A stable colour per participant: a hue in degrees and one of two depths. */
export function hueOf(id: string): { hue: number; deep: boolean } {
  let hash = 2166136261;
  for (const char of id) hash = Math.imul(hash ^ char.codePointAt(0)!, 16777619);
  // A last mix: ids that differ in one late character should not look alike.
  hash = Math.imul(hash ^ (hash >>> 15), 2246822507);
  return { hue: ((hash >>> 1) % 24) * 15, deep: (hash & 1) === 1 };
}
