/** The agent of a room: whether it is there, its name, and whether it asks before it runs a command. */
import type { AgentFacts } from "../protocol";
import type { RoomSession } from "./room-session";
import { rooms } from "./rooms";

/** Reads signals: call it while drawing. Undefined where no model is configured. */
export function agentOf(session: RoomSession): AgentFacts | undefined {
  const listed = rooms.value.find((room) => room.id === session.id)?.agent;
  const { participants, approval } = session.state.value;
  const here = participants.find((one) => one.kind === "agent");
  if (!here && !listed?.enabled) return undefined;
  return { enabled: true, name: here?.name ?? listed!.name, approval: approval ?? listed?.approval ?? "ask" };
}
