/** One room as this page is in it: joins, takes its events, sends and sends again. */
import { signal } from "@preact/signals";
import type { Connection } from "../net/connection";
import { LOST, RequestError } from "../net/connection";
import { backoff } from "../net/reconnector";
import type { Mode } from "../model/composer";
import * as model from "../model/room";
import { isPersisted, type Ack, type ExecExited, type ExecResized, type ExecGap, type ExecOutput, type Joined, type Page, type Participant, type ServerFrame } from "../protocol";
import { inOrder, Outputs, type Reader } from "./outputs";
import { toldOf } from "../model/told";
import { SharedTerminal } from "./terminals";
import { change, settle, without, type Outgoing, type OutgoingList } from "./outgoing";

/** A page of history per request. */
const PAGE_EVENTS = 60;
/** A typing sign without another one fades after this, should its end be lost. */
const TYPING_FADES_MS = 8000;
/** Times a message that was sent too fast is sent again by itself. */
const SLOWED_TRIES = 3;
/** How long a coming or going is told. */
const PASSING_MS = 5000;
/** Bytes asked for at once when output is read back. */
const READ_BYTES = 256 * 1024;
/** What a terminal runs. */
const SHELL = "bash -l";
/** A room that says "rejoin" gets this long to recover. */
const REJOIN_AFTER_MS = 1000;

export interface Problem {
  code: string;
  message: string;
  /** It is being tried again; what is on the page still stands. */
  passing: boolean;
}

export class RoomSession {
  readonly state;
  readonly outgoing = signal<OutgoingList>([]);
  readonly problem = signal<Problem | undefined>(undefined);
  readonly loadingOlder = signal(false);
  readonly olderProblem = signal<string | undefined>(undefined);
  /** Who came or went just now, in words; it goes by itself. */
  readonly passing = signal<string | undefined>(undefined);
  readonly outputs = new Outputs();
  /** The terminal that is looked at: being started, or an exec. */
  readonly terminal = signal<"new" | { exec: string } | undefined>(undefined);
  #terminals = new Map<string, SharedTerminal>();
  /** What a screen reader is told of the agent: whole sentences, never words as they come. */
  readonly told = signal("");
  #passingEnds: ReturnType<typeof setTimeout> | undefined;
  #joining = 0;
  #failures = 0;
  #sent = new Set<string>();
  #slowed = new Map<string, number>();
  #fades = new Map<string, ReturnType<typeof setTimeout>>();

  constructor(
    readonly id: string,
    private readonly connection: Connection,
    private readonly me: () => Participant | undefined,
    private readonly onNews: (frame: ServerFrame) => void,
  ) {
    this.state = signal(model.emptyRoom(id));
  }

  /** Reads the state's signal, so what draws it follows. */
  get agentName(): string {
    return model.agentIn(this.state.value).name;
  }

  async join(): Promise<void> {
    const attempt = (this.#joining += 1);
    this.state.value = { ...this.state.value, joined: false };
    const since = model.positionOf(this.state.value);
    try {
      const frame = await this.connection.request<Joined>({ type: "join", room: this.id, ...(since && { since }) });
      if (attempt !== this.#joining) return;
      this.problem.value = undefined;
      this.#failures = 0;
      this.#joined(frame);
    } catch (error) {
      // Lost on the way: the next session joins again by itself.
      if (attempt !== this.#joining || !(error instanceof RequestError) || error.code === LOST) return;
      this.problem.value = { code: error.code, message: error.message, passing: error.retryable && this.state.value.epoch !== "" };
      if (!error.retryable) return;
      const wait = Math.max(error.retryAfterMs ?? 0, backoff((this.#failures += 1), Math.random()));
      setTimeout(() => attempt === this.#joining && void this.join(), wait);
    }
  }

  leave(): void {
    this.#joining += 1;
    if (this.state.value.joined) this.connection.send({ type: "leave", room: this.id });
    this.disconnected();
  }

  disconnected(): void {
    this.#joining += 1;
    this.#sent.clear();
    this.state.value = { ...this.state.value, joined: false, typing: new Map() };
  }

  #joined(frame: Joined): void {
    this.state.value = model.applyJoined(this.state.value, frame);
    this.outgoing.value = settle(this.outgoing.value, frame.events, this.me()?.id);
    for (const event of frame.events) if (event.type === "exec.exited" && this.outputs.has(event.exec)) this.outputs.of(event.exec).exited(event);
    for (const one of this.outgoing.value) if (one.state === "sending") void this.#send(one);
  }

  /** A frame of this room that answers no request. */
  take(frame: ServerFrame | ExecResized): void {
    if (!this.state.value.joined) return;
    // Its opener's window changed; whoever looks on follows.
    if (frame.type === "exec.resized") return this.#terminals.get(frame.exec)?.shows(frame.cols, frame.rows);
    if (isPersisted(frame)) return this.#log(frame);
    switch (frame.type) {
      case "exec.output":
      case "exec.gap":
        return frame.stream === "pty" ? this.terminalOf(frame.exec)?.feed(frame) : this.outputs.feed(frame);
      case "participant.joined":
      case "participant.left":
        return this.#presence(frame.participant, frame.type === "participant.joined");
      case "typing":
        if ("participant" in frame) this.#typing(frame.participant, frame.on);
        return;
      case "agent.delta":
        this.state.value = model.withDelta(this.state.value, frame);
        return;
      case "agent.retry":
        this.state.value = model.withRetry(this.state.value, frame);
        return;
      case "left":
        this.disconnected();
        if (frame.rejoin) setTimeout(() => void this.join(), REJOIN_AFTER_MS);
        else this.problem.value = { code: frame.code, message: frame.message, passing: false };
        return;
      default:
    }
  }

  #log(event: ServerFrame & { offset: number }): void {
    if (!isPersisted(event)) return;
    if (model.leavesHole(this.state.value, event.offset)) return void this.join();
    if (event.offset <= this.state.value.offset) return;
    this.state.value = model.applyLive(this.state.value, event);
    this.outgoing.value = settle(this.outgoing.value, [event], this.me()?.id);
    if (event.type === "exec.exited") this.#exited(event);
    // Known to have begun here, so what comes is its whole output.
    if (event.type === "exec.started") this.outputs.of(event.exec).fed = true;
    this.told.value = toldOf(event, model.agentIn(this.state.value).name) ?? this.told.value;
    this.onNews(event);
  }

  #exited(event: ExecExited): void {
    const looked = typeof this.terminal.value === "object" && this.terminal.value.exec === event.exec;
    if (!looked) this.#terminals.delete(event.exec);
    this.outputs.of(event.exec).exited(event);
  }

  #presence(person: Participant, here: boolean): void {
    const before = this.state.value.participants.find((one) => one.id === person.id);
    this.state.value = model.withPerson(this.state.value, person, here);
    if (here && before) this.#passes(before, `is now ${person.name}`);
    else this.#passes(person, here ? "came in" : "left");
  }

  #passes(person: Participant, what: string): void {
    if (person.id === this.me()?.id) return;
    this.passing.value = `${person.name} ${what}`;
    clearTimeout(this.#passingEnds);
    this.#passingEnds = setTimeout(() => (this.passing.value = undefined), PASSING_MS);
  }

  #typing(person: Participant, on: boolean): void {
    if (person.id === this.me()?.id) return;
    this.state.value = model.withTyping(this.state.value, person, on);
    clearTimeout(this.#fades.get(person.id));
    this.#fades.delete(person.id);
    if (on) this.#fades.set(person.id, setTimeout(() => this.#typing(person, false), TYPING_FADES_MS));
  }

  async loadOlder(): Promise<void> {
    if (this.loadingOlder.value || !this.state.value.more) return;
    this.loadingOlder.value = true;
    this.olderProblem.value = undefined;
    const { epoch, from: before } = this.state.value;
    try {
      const page = await this.connection.request<Page>({ type: "history", room: this.id, before, limit: PAGE_EVENTS });
      if (this.state.value.epoch === epoch) this.state.value = model.applyPage(this.state.value, page.events, page.more);
    } catch (error) {
      this.olderProblem.value = (error as Error).message;
    } finally {
      this.loadingOlder.value = false;
    }
  }

  say(mode: Mode, text: string, replyTo?: string): void {
    const one: Outgoing = { key: randomKey(), mode, text, ts: Date.now(), replyTo, state: "sending" };
    this.outgoing.value = [...this.outgoing.value, one];
    void this.#send(one);
  }

  retry(key: string): void {
    this.outgoing.value = change(this.outgoing.value, key, { state: "sending", problem: undefined });
    const one = this.outgoing.value.find((each) => each.key === key);
    if (one) void this.#send(one);
  }

  discard(key: string): void {
    this.outgoing.value = without(this.outgoing.value, key);
  }

  /** Sent once per session; what a lost session leaves open is sent after the next join. */
  async #send(one: Outgoing): Promise<void> {
    if (!this.state.value.joined || this.#sent.has(one.key)) return;
    this.#sent.add(one.key);
    const { key, text } = one;
    try {
      const ack = await this.connection.request<Ack>(
        one.mode === "run"
          ? { type: "exec", room: this.id, command: text, key }
          : one.mode === "ask"
          ? { type: "ask", room: this.id, text, key }
          : { type: "say", room: this.id, text, key, ...(one.replyTo && { replyTo: one.replyTo }) },
      );
      const known = ack.turn !== undefined && this.state.value.turns.has(ack.turn);
      if (known || (ack.offset !== undefined && ack.offset <= this.state.value.offset)) this.discard(key);
      else this.outgoing.value = change(this.outgoing.value, key, { offset: ack.offset });
    } catch (error) {
      if (error instanceof RequestError && error.code === LOST) return;
      this.#sent.delete(key);
      if (error instanceof RequestError && error.code === "rate_limited" && this.#slower(one, error)) return;
      this.outgoing.value = change(this.outgoing.value, key, { state: "failed", problem: (error as Error).message });
    }
  }

  /** Sent too fast: a few times it is simply sent a little later. False when that did not help. */
  #slower(one: Outgoing, error: RequestError): boolean {
    const tries = (this.#slowed.get(one.key) ?? 0) + 1;
    this.#slowed.set(one.key, tries);
    if (tries > SLOWED_TRIES) return this.#slowed.delete(one.key) && false;
    setTimeout(() => void this.#send(one), error.retryAfterMs ?? REJOIN_AFTER_MS);
    return true;
  }

  typing(on: boolean): void {
    if (this.state.value.joined) this.connection.send({ type: "typing", room: this.id, on });
  }

  /** These reject with words for a person. */
  stop(exec: string): Promise<Ack> {
    return this.connection.request({ type: "exec.cancel", exec });
  }
  stopTurn(turn: string): Promise<Ack> {
    return this.connection.request({ type: "agent.stop", room: this.id, turn });
  }
  decide(turn: string, call: string, decision: "allow" | "deny" | "always", note?: string): Promise<Ack> {
    return this.connection.request({ type: "agent.decide", room: this.id, turn, call, decision, ...(note && { note }) });
  }
  startSandbox(): Promise<Ack> {
    return this.connection.request({ type: "sandbox.start", id: `sandbox-${this.id}` });
  }
  stopSandbox(): Promise<Ack> {
    return this.connection.request({ type: "sandbox.kill", id: `sandbox-${this.id}` });
  }

  /** The terminal of a running exec; undefined for one that is none, or has ended and was let go. */
  terminalOf(exec: string): SharedTerminal | undefined {
    const known = this.#terminals.get(exec);
    const item = model.execIn(this.state.value, exec);
    if (known || !item?.started.pty || item.exited) return known;
    const made = new SharedTerminal(exec, item.started.pty, {
      input: (exec, data) => this.connection.request({ type: "exec.input", exec, data }),
      resize: (exec, { cols, rows }) => this.connection.request({ type: "exec.resize", exec, cols, rows }),
    });
    this.#terminals.set(exec, made);
    return made;
  }

  /** Starts a shell of this size and looks at it. */
  async openTerminal(cols: number, rows: number): Promise<void> {
    const frame = { type: "exec", room: this.id, command: SHELL, pty: { cols, rows }, key: randomKey() } as const;
    try {
      const ack = await this.connection.request<Ack>(frame);
      if (this.terminal.value === "new" && ack.exec) this.terminal.value = { exec: ack.exec };
    } catch (error) {
      if (this.terminal.value === "new") this.terminal.value = undefined;
      throw error;
    }
  }

  closeTerminal(): void {
    const at = this.terminal.value;
    this.terminal.value = undefined;
    if (typeof at === "object" && model.execIn(this.state.value, at.exec)?.exited) this.#terminals.delete(at.exec);
  }

  edit(id: string, text: string): Promise<Ack> {
    return this.connection.request({ type: "edit", room: this.id, id, text });
  }
  delete(id: string): Promise<Ack> {
    return this.connection.request({ type: "delete", room: this.id, id });
  }
  react(id: string, emoji: string, on: boolean): Promise<Ack> {
    return this.connection.request({ type: "react", room: this.id, id, emoji, on });
  }

  /** Reads what is kept of a command's streams, in the order it was printed. */
  readonly read: Reader = async (exec, streams) => {
    const frames: (ExecOutput | ExecGap)[] = [];
    for (const stream of streams as ("stdout" | "stderr" | "pty")[]) {
      let at = 0;
      for (;;) {
        const ack = await this.connection.request<Ack>({ type: "exec.read", exec, stream, at, limit: READ_BYTES }, (frame) => {
          if (frame.type === "exec.output" || frame.type === "exec.gap") frames.push(frame);
        });
        if (ack.at === undefined || ack.end === undefined || ack.at >= ack.end || ack.at <= at) break;
        at = ack.at;
      }
    }
    return inOrder(frames);
  };
}

function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(36).padStart(2, "0")).join("");
}
