/** What a screen reader is told of the agent. Pure. */
import type { LogEvent } from "../protocol";
import { asks } from "./turns";

/** Characters of an answer that are read out; the rest can be read in the conversation. */
const READ_CHARS = 1500;

const cut = (text: string, chars: number): string => (text.length > chars ? `${text.slice(0, chars)} …` : text);

export function toldOf(event: LogEvent, agent: string): string | undefined {
  switch (event.type) {
    case "agent.started":
      return `${agent} is thinking for ${event.by.name}.`;
    case "agent.approval":
      if (!asks(event)) return `${agent} wants to run a command: ${cut(event.command, 200)}`;
      return `${agent} wants to run a command and needs an answer: ${cut(event.command, 200)}`;
    case "agent.decided":
      return `${event.by.name} ${event.decision === "deny" ? "denied" : "allowed"} the command${event.note ? `: ${event.note}` : "."}`;
    case "message":
      return event.by.kind === "agent" ? `${event.by.name}: ${cut(event.text ?? "", READ_CHARS)}` : undefined;
    case "agent.finished":
      return event.status === "done" ? undefined : (event.message ?? `${agent} ended without an answer.`);
    default:
      return undefined;
  }
}
