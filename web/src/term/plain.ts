/** Lines of text that holds no control sequences: most output, and far cheaper than a terminal. */
import type { Line } from "./cells";

// eslint-disable-next-line no-control-regex
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/u;
// eslint-disable-next-line no-control-regex
const SEQUENCES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f]/gu;

/** Whether text needs a terminal to be shown as it is meant. */
export function needsTerminal(text: string): boolean {
  return CONTROLS.test(text.replaceAll("\r\n", "\n"));
}

export function plainLines(text: string): Line[] {
  if (text === "") return [];
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines.map((line, id) => ({ id: id + 1, runs: line ? [{ text: line, cls: "" }] : [] }));
}

/** For the clipboard, and for a card that is not on the screen yet. */
export function withoutSequences(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(SEQUENCES, "");
}
