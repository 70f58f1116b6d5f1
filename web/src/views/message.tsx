/** A message: its words, reactions, and what its reader or author can do with it. */
import { useComputed } from "@preact/signals";
import { memo } from "preact/compat";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { MessageItem } from "../model/room";
import { reactionsOf } from "../model/room";
import { me } from "../state/app";
import type { RoomSession } from "../state/room-session";
import { say, tell } from "../state/ui";
import { Icon } from "./icons";
import { Markdown } from "./markdown";

const EMOJI = ["👍", "❤️", "😄", "🎉", "👀"] as const;

interface Props {
  item: MessageItem;
  session: RoomSession;
}

export const MessageBody = memo(function MessageBody({ item, session }: Props) {
  const [editing, setEditing] = useState(false);
  if (item.deleted) return <p class="gone">This message was deleted.</p>;
  if (editing) return <EditBox item={item} session={session} onDone={() => setEditing(false)} />;
  return (
    <div class="body" data-testid="message" data-id={item.id} tabIndex={-1}>
      {item.replyTo && <Quote id={item.replyTo} session={session} />}
      <Markdown text={item.text} mention={session.agentName} />
      {item.edited && <small class="edited">edited</small>}
      <Reactions id={item.id} session={session} />
      <Tools item={item} session={session} onEdit={() => setEditing(true)} />
    </div>
  );
});

function Quote({ id, session }: { id: string; session: RoomSession }) {
  const to = session.state.value.items.find((item) => item.kind === "message" && item.id === id);
  if (to?.kind !== "message") return null;
  return (
    <p class="quote cut">
      {to.by.name}: {to.deleted ? "a deleted message" : to.text}
    </p>
  );
}

export function Reactions({ id, session }: { id: string; session: RoomSession }) {
  // Its own message's marks alone, so that other events of the room draw nothing here.
  const marks = useComputed(() => session.state.value.reactions.get(id));
  const reactions = reactionsOf(marks.value);
  if (reactions.length === 0) return null;
  const people = session.state.peek().participants;
  const names = (who: readonly string[]): string =>
    who.map((id) => (id === me.value?.id ? "you" : (people.find((one) => one.id === id)?.name ?? "someone"))).join(", ");
  return (
    <p class="reactions">
      {reactions.map(({ emoji, who }) => {
        const mine = who.includes(me.value?.id ?? "");
        return (
          <button key={emoji} class={`reaction${mine ? " on" : ""}`} aria-pressed={mine} title={names(who)} onClick={() => void session.react(id, emoji, !mine).catch(tell)}>
            {emoji} {who.length}
          </button>
        );
      })}
    </p>
  );
}

/** An open menu holds the focus of the button it stands for, and gives it back. It closes by Escape,
 * wherever the focus is, and when something else is clicked or focused. */
function useMenu<Name extends string>() {
  const box = useRef<HTMLDivElement>(null);
  const [menu, setMenu] = useState<Name>();
  const opened = useRef<Name | undefined>(undefined);
  const back = useRef(false);
  const close = (refocus: boolean): void => {
    back.current = refocus;
    setMenu(undefined);
  };
  useLayoutEffect(() => {
    const from = opened.current;
    opened.current = menu;
    if (menu) box.current?.querySelector("button")?.focus();
    else if (from && back.current) box.current?.querySelector<HTMLElement>(`[data-menu=${from}]`)?.focus();
  }, [menu]);
  // Not after the next paint: a key may come sooner.
  useLayoutEffect(() => {
    if (!menu) return;
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      close(true);
    };
    const onElsewhere = (event: Event): void => {
      if (!box.current?.contains(event.target as Node)) close(false);
    };
    document.addEventListener("keydown", onKey, true);
    document.addEventListener("pointerdown", onElsewhere, true);
    document.addEventListener("focusin", onElsewhere, true);
    return () => {
      document.removeEventListener("keydown", onKey, true);
      document.removeEventListener("pointerdown", onElsewhere, true);
      document.removeEventListener("focusin", onElsewhere, true);
    };
  }, [menu]);
  return { box, menu, open: setMenu, close };
}

/** A click without a pointer: by Enter or Space. */
const byKey = (event: MouseEvent): boolean => event.detail === 0;

function Tools({ item, session, onEdit }: Props & { onEdit: () => void }) {
  const { box, menu, open, close } = useMenu<"react" | "delete">();
  const mine = item.by.id === me.value?.id;
  const react = (emoji: string, event: MouseEvent): void => {
    close(byKey(event));
    void session.react(item.id, emoji, true).catch(tell);
  };
  const remove = (): void => {
    close(false);
    session.delete(item.id).then(() => say("Message deleted"), tell);
  };
  return (
    <div ref={box} class={`tools${menu ? " open" : ""}`} role="group" aria-label="Message actions">
      {menu === "react" &&
        EMOJI.map((emoji) => (
          <button key={emoji} class="icon-only" aria-label={`React with ${emoji}`} onClick={(event) => react(emoji, event)}>
            {emoji}
          </button>
        ))}
      {menu === "delete" && (
        <>
          <button class="small bad" data-testid="message-delete-confirm" onClick={remove}>
            Delete for everyone
          </button>
          <button class="small" data-testid="message-keep" onClick={(event) => close(byKey(event))}>
            Keep
          </button>
        </>
      )}
      {!menu && (
        <>
          <button class="icon-only" title="React" aria-label="React" data-testid="message-react" data-menu="react" onClick={() => open("react")}>
            <Icon name="smile" />
          </button>
          {mine && (
            <>
              <button class="icon-only" title="Edit" aria-label="Edit" data-testid="message-edit" onClick={onEdit}>
                <Icon name="edit" />
              </button>
              <button class="icon-only" title="Delete" aria-label="Delete" data-testid="message-delete" data-menu="delete" onClick={() => open("delete")}>
                <Icon name="trash" />
              </button>
            </>
          )}
        </>
      )}
    </div>
  );
}

function EditBox({ item, session, onDone }: Props & { onDone: () => void }) {
  const [text, setText] = useState(item.text);
  const [problem, setProblem] = useState<string>();
  const save = async (): Promise<void> => {
    if (!text.trim()) return setProblem("An empty message can't be saved. Delete it instead.");
    if (text.trim() === item.text) return onDone();
    try {
      await session.edit(item.id, text.trim());
      onDone();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Escape") onDone();
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      void save();
    } else return;
    event.stopPropagation();
  };
  return (
    <div class="edit">
      <textarea
        aria-label="Edit message"
        data-testid="message-edit-input"
        rows={Math.min(8, text.split("\n").length + 1)}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKey}
        ref={(element) => {
          if (element && document.activeElement !== element && element.dataset.seen === undefined) {
            element.dataset.seen = "";
            element.focus();
            element.selectionStart = element.value.length;
          }
        }}
      />
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      <div class="row">
        <button class="primary small" onClick={() => void save()}>
          Save
        </button>
        <button class="small" onClick={onDone}>
          Cancel
        </button>
      </div>
    </div>
  );
}
