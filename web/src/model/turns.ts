/** The agent's turns, as the log and the live frames tell them: questions, words so far, wanted
 * commands, ends. Pure; where a turn stands in the timeline is `room`'s. */
import type {
  AgentApproval,
  AgentDecided,
  AgentDelta,
  AgentFinished,
  AgentQueued,
  AgentRetry,
  AgentStarted,
  ExecExited,
  ExecStarted,
  Message,
  OpenTurn,
  Participant,
} from "../protocol";

/** `at`, here and in `Ran`: the code points of the turn's text that stand before it. `asks`: people
 * are asked about it; else the server refused it as it was wanted. */
export interface Wanted {
  readonly call: string;
  readonly command: string;
  readonly offset: number;
  readonly at: number;
  readonly expiresTs: number;
  readonly asks: boolean;
}
export interface Ran {
  readonly exec: string;
  readonly command: string;
  readonly offset: number;
  readonly at: number;
}
export interface Decided {
  readonly by: Participant;
  readonly decision: string;
  readonly note?: string | undefined;
}

export interface Turn {
  readonly id: string;
  readonly by?: Participant | undefined;
  readonly question: string;
  readonly replyTo?: string | undefined;
  /** `queued`, `thinking`, `approval`, `running`, `retrying`, then the status of its end. */
  readonly status: string;
  /** Offset of `agent.queued`: the order of those that wait. */
  readonly queued: number;
  readonly text: string;
  /** Code points of `text`, where nothing of it was lost. */
  readonly have: number;
  /** Words were lost on the way; the message will bring them. */
  readonly holes: boolean;
  readonly wanted: readonly Wanted[];
  readonly decided: ReadonlyMap<string, Decided>;
  readonly ran: readonly Ran[];
  readonly message?: { readonly id: string; readonly text: string; readonly partial: boolean } | undefined;
  readonly end?: { readonly status: string; readonly message?: string | undefined; readonly usage: { readonly [what: string]: number } } | undefined;
  readonly retry?: { readonly message: string; readonly retryTs: number } | undefined;
}
export type Turns = ReadonlyMap<string, Turn>;

export type TurnEvent = AgentQueued | AgentStarted | AgentApproval | AgentDecided | AgentFinished;

const OPEN = new Set(["queued", "thinking", "approval", "running", "retrying"]);

function blank(id: string): Turn {
  return { id, question: "", status: "thinking", queued: Number.MAX_SAFE_INTEGER, text: "", have: 0, holes: false, wanted: [], decided: new Map(), ran: [] };
}

export const isOpen = (turn: Turn): boolean => OPEN.has(turn.status);

/** Changes one turn; those that don't change keep the whole map as it is. */
function change(turns: Turns, id: string, to: (turn: Turn) => Turn): Turns {
  const before = turns.get(id) ?? blank(id);
  const after = to(before);
  return after === before && turns.has(id) ? turns : new Map(turns).set(id, after);
}

/** A status told by an event: the end stays, and what comes goes on after a pause. */
const now = (turn: Turn, status: string): Turn => (turn.end ? turn : { ...turn, status, retry: undefined });

/** `live`: the event is newer than all before it; otherwise it comes with a page of history. */
export function applyTurnEvent(turns: Turns, event: TurnEvent, live: boolean): Turns {
  return change(turns, event.turn, (turn) => {
    switch (event.type) {
      case "agent.queued":
      case "agent.started":
        return asked(turn, event, live);
      case "agent.approval":
        return now({ ...turn, wanted: put(turn.wanted, wantedOf(event), "call") }, live && asks(event) ? "approval" : turn.status);
      case "agent.decided": {
        const { by, decision, note } = event;
        return now({ ...turn, decided: new Map(turn.decided).set(event.call, { by, decision, note }) }, live ? "thinking" : turn.status);
      }
      case "agent.finished":
        return { ...turn, status: event.status, retry: undefined, end: { status: event.status, message: event.message, usage: event.usage ?? {} } };
    }
  });
}

function asked(turn: Turn, event: AgentQueued | AgentStarted, live: boolean): Turn {
  const { by, question, replyTo } = event;
  const known = { ...turn, by, question, replyTo };
  if (event.type === "agent.started") return live ? now(known, "thinking") : known;
  return live ? now({ ...known, queued: event.offset }, "queued") : { ...known, queued: event.offset };
}

/** Whether a wanted command waits for people: nobody is asked after the time to answer is over. */
export const asks = (event: AgentApproval): boolean => event.expiresTs > event.ts;

const wantedOf = (event: AgentApproval): Wanted => {
  const { call, command, offset, at = 0, expiresTs } = event;
  return { call, command, offset, at, expiresTs, asks: asks(event) };
};

/** Puts one in, in the log's order; of one that is known, what is told last counts. */
function put<T extends { offset: number }>(list: readonly T[], one: T, key: keyof T): readonly T[] {
  return [...list.filter((each) => each[key] !== one[key]), one].sort((a, b) => a.offset - b.offset);
}

export function applyRan(turns: Turns, event: ExecStarted, live: boolean): Turns {
  if (!event.turn) return turns;
  return change(turns, event.turn, (turn) => {
    const { exec, command, offset, at = 0 } = event;
    const ran = put(turn.ran, { exec, command, offset, at }, "exec");
    return live ? now({ ...turn, ran }, "running") : { ...turn, ran };
  });
}

/** A command of a turn ended: the agent thinks about what came out. */
export function applyRanEnd(turns: Turns, event: ExecExited): Turns {
  for (const turn of turns.values())
    if (turn.status === "running" && turn.ran.some((one) => one.exec === event.exec)) return change(turns, turn.id, (one) => now(one, "thinking"));
  return turns;
}

export function applySaid(turns: Turns, event: Message): Turns {
  if (!event.turn || event.by.kind !== "agent") return turns;
  return change(turns, event.turn, (turn) => {
    const text = event.text ?? "";
    return { ...turn, message: { id: event.id, text, partial: event.partial === true }, text };
  });
}

/** Words as they come. Overlap is skipped by code points; a hole waits for the message. */
export function applyDelta(turns: Turns, frame: Pick<AgentDelta, "turn" | "at" | "text">): Turns {
  return change(turns, frame.turn, (turn) => {
    if (turn.message || turn.end) return turn;
    const points = [...frame.text];
    const end = frame.at + points.length;
    if (end <= turn.have) return turn;
    const hole = frame.at > turn.have;
    const fresh = hole ? `…${frame.text}` : points.slice(turn.have - frame.at).join("");
    const text = turn.text + fresh;
    const status = turn.status === "queued" || turn.status === "retrying" ? "thinking" : turn.status;
    return { ...turn, text, have: end, holes: turn.holes || hole, status, retry: undefined };
  });
}

export function applyRetry(turns: Turns, frame: AgentRetry): Turns {
  return change(turns, frame.turn, (turn) => (turn.end ? turn : { ...turn, status: "retrying", retry: { message: frame.message, retryTs: frame.retryTs } }));
}

/** A turn that was open at the join: its words so far, its status, its commands. */
export function applyOpen(turns: Turns, view: OpenTurn, offset: number): Turns {
  return change(turns, view.turn, (turn) => {
    const longer = view.text.length >= turn.text.length || turn.holes;
    const text = longer ? view.text : turn.text;
    let { wanted, ran } = turn;
    view.calls.forEach(({ call, command, at = 0, status, exec, expiresTs }, index) => {
      // The log knows it better; of one that was denied it alone knows by whom.
      const place = { command, at, offset: offset + index / 1000 };
      if (expiresTs !== undefined && status !== "denied" && !wanted.some((one) => one.call === call)) wanted = put(wanted, { ...place, call, expiresTs, asks: true }, "call");
      if (exec !== undefined && !ran.some((one) => one.exec === exec)) ran = put(ran, { ...place, exec }, "exec");
    });
    const queued = turn.queued === Number.MAX_SAFE_INTEGER && view.status === "queued" ? offset : turn.queued;
    return { ...turn, by: view.by, question: view.question, replyTo: view.replyTo, status: view.status, queued, text, have: [...text].length, holes: false, wanted, ran };
  });
}

/** What a turn shows, in order. */
export type Part =
  | { kind: "text"; key: string; text: string }
  | { kind: "run"; key: string; exec: string; allowed?: Decided | undefined }
  | { kind: "wanted"; key: string; wanted: Wanted; decided?: Decided | undefined };

export function partsOf(turn: Turn): Part[] {
  const parts: Part[] = [];
  const place = placesIn(turn.text);
  let from = 0;
  const text = (to: number): void => {
    const words = turn.text.slice(from, to).replace(/^\s*\n|\s+$/gu, "");
    if (words.trim()) parts.push({ kind: "text", key: `text-${from}`, text: words });
    from = Math.max(from, to);
  };
  for (const { at, part } of callsOf(turn)) {
    text(place(at));
    parts.push(part);
  }
  text(turn.text.length);
  return parts;
}

/** Where in a text so many code points end, in UTF-16 units; asked in ascending order. */
function placesIn(text: string): (points: number) => number {
  let units = 0;
  let passed = 0;
  return (points) => {
    for (; passed < points && units < text.length; passed++) units += text.codePointAt(units)! > 0xffff ? 2 : 1;
    return units;
  };
}

/** Commands in order: one that was allowed and then ran is one, told by the command's own words. */
function callsOf(turn: Turn): { at: number; part: Part }[] {
  const waiting = [...turn.wanted];
  const calls: { at: number; offset: number; part: Part }[] = turn.ran.map(({ exec, command, offset, at }) => {
    const match = waiting.findIndex((one) => one.command === command && one.offset <= offset && turn.decided.get(one.call)?.decision !== "deny");
    const approval = match < 0 ? undefined : waiting.splice(match, 1)[0];
    const allowed = approval && turn.decided.get(approval.call);
    return { at: approval?.at ?? at, offset: approval?.offset ?? offset, part: { kind: "run", key: exec, exec, allowed } };
  });
  for (const wanted of waiting)
    calls.push({ at: wanted.at, offset: wanted.offset, part: { kind: "wanted", key: wanted.call, wanted, decided: turn.decided.get(wanted.call) } });
  return calls.sort((a, b) => a.at - b.at || a.offset - b.offset);
}

/** Those that wait, in the order asked. */
export function waitingTurns(turns: Turns): readonly Turn[] {
  return [...turns.values()].filter((turn) => turn.status === "queued").sort((a, b) => a.queued - b.queued);
}

/** The one that is answered now. */
export function currentTurn(turns: Turns): Turn | undefined {
  return [...turns.values()].find((turn) => isOpen(turn) && turn.status !== "queued");
}

/** Tokens of all turns that are known here, in and out. */
export function tokensOf(turns: Turns): number {
  return [...turns.values()].reduce((sum, turn) => sum + (turn.end?.usage.inputTokens ?? 0) + (turn.end?.usage.outputTokens ?? 0), 0);
}
