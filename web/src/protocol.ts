/** The wire as the page uses it: the generated types, and what the HTTP list of rooms looks like.
 * What a field means stands in PROTOCOL. */
import type { LogEvent, Sandbox, ServerFrame, Turn } from "./generated/frames";

export { SUBPROTOCOL_JSON } from "./generated/frames";
export type {
  Ack,
  AgentApproval,
  AgentDecided,
  AgentDelta,
  AgentFinished,
  AgentQueued,
  AgentRetry,
  AgentStarted,
  ClientFrame,
  ErrorFrame,
  ExecExited,
  ExecGap,
  ExecOutput,
  ExecStarted,
  Joined,
  Limits,
  LogEvent,
  Message,
  Page,
  Participant,
  Position,
  PtySize,
  Sandbox,
  ServerFrame,
  Welcome,
} from "./generated/frames";

/** A turn that was open at the join, with what is known of its commands. */
export type OpenTurn = Omit<Turn, "calls"> & {
  calls: { call: string; command: string; at?: number; status: string; exec?: string; expiresTs?: number }[];
};

/** The size of a shared terminal changed. */
export interface ExecResized {
  type: "exec.resized";
  room: string;
  exec: string;
  cols: number;
  rows: number;
}

/** The agent as the list of rooms has it. */
export interface AgentFacts {
  enabled: boolean;
  name: string;
  approval: string;
}

/** A room in the HTTP list. Servers may leave out what they don't count. */
export interface RoomInfo {
  id: string;
  name?: string;
  description?: string;
  createdTs?: number;
  running?: number | null;
  members?: number | null;
  sandbox?: Partial<Sandbox> | string | null;
  agent?: AgentFacts;
}

/** Whether a frame stands in a room's log. Its type may be one that the page does not know. */
export function isPersisted(frame: ServerFrame): frame is LogEvent {
  return "offset" in frame && typeof frame.offset === "number" && "by" in frame && "room" in frame;
}
