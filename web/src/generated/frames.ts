// Generated from protocol/ by `python -m protocol.schema`. Change the models, then run it again.

export const PROTOCOL_VERSION = 1;
export const SUBPROTOCOL_JSON = "duet.v1.json";
export const SUBPROTOCOL_MSGPACK = "duet.v1.msgpack";
export const ROOM_ID_PATTERN = "^[a-z0-9][a-z0-9_-]{0,63}$";

export const CloseCode = {
  RESTARTING: 4000,
  TOO_SLOW: 4001,
  SILENT: 4002,
  NOT_ALLOWED: 4500,
  REVOKED: 4501,
  BROKEN_FRAMES: 4502,
} as const;

/** The codes of `error` that are known today; there may be more. */
export type ErrorCode =
  | "bad_frame"
  | "invalid"
  | "hello_required"
  | "already_hello"
  | "unauthenticated"
  | "forbidden"
  | "not_joined"
  | "unknown_room"
  | "unknown_exec"
  | "unknown_message"
  | "unknown_turn"
  | "unknown_sandbox"
  | "key_conflict"
  | "conflict"
  | "limit"
  | "rate_limited"
  | "unavailable"
  | "internal_error"
  | "too_large";

export interface Ack {
  ref?: string;
  type: "ack";
  offset?: number;
  id?: string;
  exec?: string;
  turn?: string;
  at?: number;
  end?: number;
  exited?: Exited;
  sandbox?: Sandbox;
  sandboxes?: Array<Sandbox>;
  more?: boolean;
}

/**
 * A wanted command, at its place in the turn's words (code points before it).
 *
 * Where `expires_ts` is not after `ts` nobody is asked: its refusal follows.
 */
export interface AgentApproval {
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "agent.approval";
  turn: string;
  call: string;
  command: string;
  at?: number;
  expiresTs: number;
}

export interface AgentDecide {
  ref?: string;
  type: "agent.decide";
  room: string;
  turn: string;
  call: string;
  decision: "allow" | "deny" | "always";
  note?: string;
}

export interface AgentDecided {
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "agent.decided";
  turn: string;
  call: string;
  decision: string;
  note?: string;
}

export interface AgentDelta {
  type: "agent.delta";
  room: string;
  turn: string;
  at: number;
  text: string;
}

export interface AgentFinished {
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "agent.finished";
  turn: string;
  status: string;
  message?: string;
  usage?: Record<string, number>;
}

/** Whether the agent's commands run at once, after somebody's word, or not at all. */
export interface AgentPolicy {
  approval: string;
}

export interface AgentQueued {
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "agent.queued";
  turn: string;
  question: string;
  replyTo?: string;
}

/** The model could not be asked; the turn waits until `retry_ts` and tries again. */
export interface AgentRetry {
  type: "agent.retry";
  room: string;
  turn: string;
  attempt: number;
  message: string;
  retryTs: number;
}

export interface AgentStarted {
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "agent.started";
  turn: string;
  question: string;
  replyTo?: string;
}

export interface AgentStop {
  ref?: string;
  type: "agent.stop";
  room: string;
  turn: string;
}

export interface Ask {
  ref?: string;
  type: "ask";
  room: string;
  text: string;
  key?: string;
}

export interface Bye {
  type: "bye";
  code: number;
  reason: string;
  reconnect: boolean;
}

/** Every frame a client may send. */
export type ClientFrame =
  | Hello
  | Join
  | Leave
  | Say
  | Edit
  | Delete
  | React
  | Typing
  | History
  | Exec
  | ExecInput
  | ExecResize
  | ExecSignal
  | ExecCancel
  | ExecRead
  | Ask
  | AgentStop
  | AgentDecide
  | SandboxStart
  | SandboxKill
  | SandboxDestroy
  | SandboxList
  | Ping;

export interface Delete {
  ref?: string;
  type: "delete";
  room: string;
  id: string;
}

export interface Edit {
  ref?: string;
  type: "edit";
  room: string;
  id: string;
  text: string;
}

/** What is seen live alone, without offset. */
export type EphemeralEvent =
  | ParticipantJoined
  | ParticipantLeft
  | TypingChanged
  | ExecOutput
  | ExecGap
  | ExecResized
  | AgentDelta
  | AgentRetry
  | Left
  | Bye;

export interface ErrorFrame {
  ref?: string;
  type: "error";
  code: string;
  message: string;
  retryable: boolean;
  details?: Record<string, Array<string>>;
  retryAfterMs?: number;
}

export interface Exec {
  ref?: string;
  type: "exec";
  room?: string;
  sandbox?: string;
  command?: string;
  argv?: Array<string>;
  cwd?: string;
  env?: Record<string, string>;
  timeoutMs?: number;
  stdin?: boolean;
  pty?: PtySize;
  key?: string;
}

export interface ExecCancel {
  ref?: string;
  type: "exec.cancel";
  exec: string;
}

export interface ExecExited {
  exec: string;
  ok: boolean;
  reason?: string;
  message?: string;
  retryable?: boolean;
  stdout?: string;
  stderr?: string;
  exitCode?: number;
  signal?: string;
  warnings?: Array<string>;
  durationMs: number;
  bytes: Record<string, number>;
  truncated: Record<string, boolean>;
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "exec.exited";
}

/** Bytes this client was not sent; `exec.read` fetches them while `kept`. */
export interface ExecGap {
  type: "exec.gap";
  ref?: string;
  room?: string;
  exec: string;
  stream: string;
  from: number;
  to: number;
  kept: boolean;
}

export interface ExecInput {
  ref?: string;
  type: "exec.input";
  exec: string;
  data?: string | Uint8Array;
  base64?: string;
  eof?: boolean;
}

/** Bytes of a stream from byte `at`; `pos` counts the bytes of all the exec's streams before. */
export interface ExecOutput {
  type: "exec.output";
  ref?: string;
  room?: string;
  exec: string;
  stream: string;
  at: number;
  size: number;
  pos: number;
  data?: string | Uint8Array;
  base64?: string;
}

export interface ExecRead {
  ref?: string;
  type: "exec.read";
  exec: string;
  stream?: "stdout" | "stderr" | "pty";
  at: number;
  limit?: number;
}

export interface ExecResize {
  ref?: string;
  type: "exec.resize";
  exec: string;
  cols: number;
  rows: number;
}

/** The terminal of a command has another size: its opener's. */
export interface ExecResized {
  type: "exec.resized";
  room?: string;
  exec: string;
  cols: number;
  rows: number;
}

export interface ExecSignal {
  ref?: string;
  type: "exec.signal";
  exec: string;
  signal: string;
}

export interface ExecStarted {
  exec: string;
  command: string;
  cwd: string;
  turn?: string;
  at?: number;
  stdin?: boolean;
  pty?: PtySize;
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "exec.started";
}

/** The one end of an exec. `reason` only where `ok` is false. */
export interface Exited {
  exec: string;
  ok: boolean;
  reason?: string;
  message?: string;
  retryable?: boolean;
  stdout?: string;
  stderr?: string;
  exitCode?: number;
  signal?: string;
  warnings?: Array<string>;
  durationMs: number;
  bytes: Record<string, number>;
  truncated: Record<string, boolean>;
}

export interface Hello {
  ref?: string;
  type: "hello";
  token?: string;
  name?: string;
  kind?: "human" | "bot";
}

export interface History {
  ref?: string;
  type: "history";
  room: string;
  before?: number;
  after?: number;
  limit?: number;
}

export interface Join {
  ref?: string;
  type: "join";
  room: string;
  since?: Position;
  output?: boolean;
}

export interface Joined {
  ref?: string;
  type: "joined";
  room: string;
  role: string;
  epoch: string;
  offset: number;
  oldest: number;
  resumed: boolean;
  participants: Array<Participant>;
  events: Array<LogEvent>;
  execs: Array<RunningExec>;
  turns: Array<Turn>;
  sandbox?: Sandbox;
}

export interface Leave {
  ref?: string;
  type: "leave";
  room: string;
}

export interface Left {
  type: "left";
  room: string;
  code: string;
  message: string;
  rejoin: boolean;
}

/** What a client may send and expect; sizes in bytes unless the name says otherwise. */
export interface Limits {
  frameBytes: number;
  serverFrameBytes: number;
  textChars: number;
  commandBytes: number;
  framesPerSecond: number;
  rooms: number;
  execKeptBytes: number;
  resumeEvents: number;
}

/** What stands in a room's log, with its offset. */
export type LogEvent =
  | Message
  | MessageEdited
  | MessageDeleted
  | MessageReacted
  | ExecStarted
  | ExecExited
  | AgentQueued
  | AgentStarted
  | AgentApproval
  | AgentDecided
  | AgentFinished
  | SandboxChanged
  | RoomUpdated
  | RoomCleared;

export interface Message {
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "message";
  id: string;
  text?: string;
  replyTo?: string;
  turn?: string;
  partial?: boolean;
  editedTs?: number;
  deleted?: boolean;
}

export interface MessageDeleted {
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "message.deleted";
  id: string;
}

export interface MessageEdited {
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "message.edited";
  id: string;
  text?: string;
}

export interface MessageReacted {
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "message.reacted";
  id: string;
  emoji: string;
  on: boolean;
}

export interface Page {
  ref?: string;
  type: "page";
  events: Array<LogEvent>;
  more: boolean;
}

/** An identity: who says or runs something. */
export interface Participant {
  id: string;
  name: string;
  kind: "human" | "bot" | "agent";
  role?: "owner" | "member";
}

export interface ParticipantJoined {
  type: "participant.joined";
  room: string;
  participant: Participant;
}

export interface ParticipantLeft {
  type: "participant.left";
  room: string;
  participant: Participant;
}

export interface Ping {
  ref?: string;
  type: "ping";
}

export interface Pong {
  ref?: string;
  type: "pong";
}

/** A place in a room's log. */
export interface Position {
  epoch: string;
  offset: number;
}

export interface PtySize {
  cols: number;
  rows: number;
}

export interface React {
  ref?: string;
  type: "react";
  room: string;
  id: string;
  emoji: string;
  on: boolean;
}

/** What answers a frame, with its `ref`. */
export type ReplyFrame =
  | Welcome
  | Joined
  | Ack
  | Page
  | ErrorFrame
  | Pong;

export interface RoomCleared {
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "room.cleared";
}

export interface RoomUpdated {
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "room.updated";
  name: string;
  description: string;
  agent?: AgentPolicy;
}

export interface RunningExec {
  started: ExecStarted;
  streams: Record<string, StreamRange>;
}

/**
 * The state of a sandbox, in the `sandbox` event and in lists.
 *
 * Of a saved workspace `saved_at` (ms since the epoch) and, once measured, what it takes on disk.
 */
export interface Sandbox {
  id: string;
  status: string;
  workspaceSaved: boolean;
  image: string;
  instanceType: string;
  expectedStopAt?: number;
  lastError?: string;
  savedAt?: number;
  workspaceBytes?: number;
}

export interface SandboxChanged {
  id: string;
  status: string;
  workspaceSaved: boolean;
  image: string;
  instanceType: string;
  expectedStopAt?: number;
  lastError?: string;
  savedAt?: number;
  workspaceBytes?: number;
  room: string;
  offset: number;
  ts: number;
  by: Participant;
  key?: string;
  type: "sandbox";
}

export interface SandboxDestroy {
  ref?: string;
  type: "sandbox.destroy";
  id: string;
}

/** As `exec.exited`, for who asked a sandbox without a room: no room, no offset. */
export interface SandboxExecExited {
  exec: string;
  ok: boolean;
  reason?: string;
  message?: string;
  retryable?: boolean;
  stdout?: string;
  stderr?: string;
  exitCode?: number;
  signal?: string;
  warnings?: Array<string>;
  durationMs: number;
  bytes: Record<string, number>;
  truncated: Record<string, boolean>;
  type: "exec.exited";
  by: Participant;
}

/** As `exec.started`, for who asked a sandbox without a room: no room, no offset. */
export interface SandboxExecStarted {
  exec: string;
  command: string;
  cwd: string;
  turn?: string;
  at?: number;
  stdin?: boolean;
  pty?: PtySize;
  type: "exec.started";
  by: Participant;
  key?: string;
}

export interface SandboxKill {
  ref?: string;
  type: "sandbox.kill";
  id: string;
}

export interface SandboxList {
  ref?: string;
  type: "sandbox.list";
  after?: string;
  limit?: number;
}

export interface SandboxStart {
  ref?: string;
  type: "sandbox.start";
  id: string;
  image?: string;
  instanceType?: string;
  sleepAfter?: string | number;
  keepAlive?: boolean;
  startupCommand?: string;
  startupTimeoutMs?: number;
  network?: string;
}

/** As `sandbox`, for who asked for a sandbox without a room: no room, no offset. */
export interface SandboxState {
  id: string;
  status: string;
  workspaceSaved: boolean;
  image: string;
  instanceType: string;
  expectedStopAt?: number;
  lastError?: string;
  savedAt?: number;
  workspaceBytes?: number;
  type: "sandbox";
}

export interface Say {
  ref?: string;
  type: "say";
  room: string;
  text: string;
  key?: string;
  replyTo?: string;
}

/** Every frame a server may send. */
export type ServerFrame =
  | Welcome
  | Joined
  | Ack
  | Page
  | ErrorFrame
  | Pong
  | Message
  | MessageEdited
  | MessageDeleted
  | MessageReacted
  | ExecStarted
  | ExecExited
  | AgentQueued
  | AgentStarted
  | AgentApproval
  | AgentDecided
  | AgentFinished
  | SandboxChanged
  | RoomUpdated
  | RoomCleared
  | ParticipantJoined
  | ParticipantLeft
  | TypingChanged
  | ExecOutput
  | ExecGap
  | ExecResized
  | AgentDelta
  | AgentRetry
  | Left
  | Bye;

export interface ServerInfo {
  version: string;
  protocol: number;
}

/** Bytes of one stream that follow a join: from the first kept to the last sent. */
export interface StreamRange {
  from: number;
  to: number;
}

export interface Turn {
  turn: string;
  by: Participant;
  question: string;
  replyTo?: string;
  status: string;
  text: string;
  calls: Array<Record<string, unknown>>;
}

export interface Typing {
  ref?: string;
  type: "typing";
  room: string;
  on: boolean;
}

export interface TypingChanged {
  type: "typing";
  room: string;
  participant: Participant;
  on: boolean;
}

export interface Welcome {
  ref?: string;
  type: "welcome";
  session: string;
  participant: Participant;
  token: string;
  server: ServerInfo;
  limits: Limits;
}
