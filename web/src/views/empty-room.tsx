/** A new room teaches by three things to try. */
import { agentOf } from "../state/agent";
import type { RoomSession } from "../state/room-session";
import { linkOf } from "../state/route";
import { copy, fill } from "../state/ui";

export function EmptyRoom({ session }: { session: RoomSession }) {
  const agent = agentOf(session);
  const tries = [
    {
      id: "say",
      title: "Say something",
      text: "Messages take markdown and code blocks.",
      act: () => (fill.value = { text: "Hello!", mode: "message" }),
    },
    {
      id: "run",
      title: "Run a command",
      text: "Everyone sees its output, line by line.",
      act: () => (fill.value = { text: "for i in 1 2 3; do echo $i; sleep 1; done", mode: "run" }),
    },
    ...(agent
      ? [
          {
            id: "ask",
            title: `Ask ${agent.name}`,
            text: "It answers everyone, and can run commands here.",
            act: () => (fill.value = { text: `@${agent.name} what can you do here?`, mode: "message" as const }),
          },
        ]
      : []),
    {
      id: "invite",
      title: "Invite someone",
      text: "Copy the link; whoever opens it is in.",
      act: () => void copy(linkOf(session.id), "Link copied. Send it to someone."),
    },
  ];
  return (
    <div class="empty" data-testid="empty-room">
      <h2>A new room</h2>
      <p class="soft">It has its own sandbox, which starts with the first command and keeps its files.</p>
      <ul>
        {tries.map(({ id, title, text, act }) => (
          <li key={id}>
            <button class="try" data-testid={`try-${id}`} onClick={act}>
              <b>{title}</b>
              <span>{text}</span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}
