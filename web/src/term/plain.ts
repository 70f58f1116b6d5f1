/** Which output is lines of text alone: most of it, and far cheaper than a terminal. */

const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/u;

/** Whether text needs a terminal to be shown as it is meant. */
export function needsTerminal(text: string): boolean {
  return CONTROLS.test(text.replaceAll("\r\n", "\n"));
}
