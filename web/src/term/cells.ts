/** One row of xterm's buffer as runs of equal style. Pure over xterm's read-only buffer API. */
import type { IBufferCell, IBufferLine } from "@xterm/headless";

export interface Run {
  text: string;
  /** Class names, or "" for plain text. */
  cls: string;
  fg?: string;
  bg?: string;
}

/** A logical line: rows that wrapped are joined, so that the page can wrap or scroll them itself. */
export interface Line {
  readonly id: number;
  readonly runs: readonly Run[];
}

const LEVELS = [0, 95, 135, 175, 215, 255];

/** The xterm palette above its first 16 colours: a 6×6×6 cube, then 24 greys. */
export function paletteColour(index: number): string {
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10;
    return `rgb(${grey},${grey},${grey})`;
  }
  const at = index - 16;
  return `rgb(${LEVELS[Math.floor(at / 36)]},${LEVELS[Math.floor(at / 6) % 6]},${LEVELS[at % 6]})`;
}

const hex = (rgb: number): string => `#${rgb.toString(16).padStart(6, "0")}`;

const PLAIN: Omit<Run, "text"> = { cls: "" };

function styleOf(cell: IBufferCell): Omit<Run, "text"> {
  const classes: string[] = [];
  const run: { fg?: string; bg?: string } = {};
  if (cell.isFgRGB()) run.fg = hex(cell.getFgColor());
  else if (cell.isFgPalette()) {
    // Bold brightens the first eight, as terminals do.
    const index = cell.getFgColor() + (cell.isBold() && cell.getFgColor() < 8 ? 8 : 0);
    if (index < 16) classes.push(`f${index}`);
    else run.fg = paletteColour(index);
  }
  if (cell.isBgRGB()) run.bg = hex(cell.getBgColor());
  else if (cell.isBgPalette()) {
    if (cell.getBgColor() < 16) classes.push(`b${cell.getBgColor()}`);
    else run.bg = paletteColour(cell.getBgColor());
  }
  if (cell.isBold()) classes.push("tb");
  if (cell.isDim()) classes.push("td");
  if (cell.isItalic()) classes.push("ti");
  if (cell.isUnderline()) classes.push("tu");
  if (cell.isStrikethrough()) classes.push("ts");
  if (cell.isInverse()) classes.push("tv");
  if (cell.isInvisible()) classes.push("th");
  return { cls: classes.join(" "), ...run };
}

/** The runs of a row; `whole` keeps trailing blanks, because the line goes on in the next row. */
export function runsOf(line: IBufferLine, scratch: IBufferCell, whole: boolean): Run[] {
  const width = whole ? line.length : usedWidth(line, scratch);
  const runs: Run[] = [];
  let last: Run | undefined;
  for (let x = 0; x < width; x += 1) {
    const cell = line.getCell(x, scratch);
    // The second half of a wide character has no width of its own.
    if (!cell || cell.getWidth() === 0) continue;
    const chars = cell.getChars() || " ";
    const style = cell.isAttributeDefault() ? PLAIN : styleOf(cell);
    if (last && sameStyle(last, style)) last.text += chars;
    else runs.push((last = { text: chars, ...style }));
  }
  return runs;
}

function sameStyle(a: Omit<Run, "text">, b: Omit<Run, "text">): boolean {
  return a.cls === b.cls && a.fg === b.fg && a.bg === b.bg;
}

const ASCII = /^[\x20-\x7e]*$/u;

/** Columns up to the last that holds a character. Coloured blanks after it are left out: a bar that
 * a program drew to the edge of its screen has no edge here. */
function usedWidth(line: IBufferLine, scratch: IBufferCell): number {
  const text = line.translateToString(true);
  // One column per character: most rows, and many times faster than asking each cell.
  if (ASCII.test(text)) return text.length;
  for (let x = line.length - 1; x >= 0; x -= 1) {
    const cell = line.getCell(x, scratch);
    if (cell && cell.getChars().trim() !== "") return x + Math.max(1, cell.getWidth());
  }
  return 0;
}

export function textOf(line: Line): string {
  return line.runs.map((run) => run.text).join("");
}
