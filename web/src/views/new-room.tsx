/** The form that makes a room. */
import { useEffect, useRef, useState } from "preact/hooks";
import { createRoom } from "../state/rooms";
import { go } from "../state/route";
import { drawer } from "../state/ui";

const ROOM_NAME_CHARS = 64;

interface Props {
  /** The id the room should get, when a link to it was opened. */
  id?: string;
  initial?: string;
  onDone?: () => void;
  onCancel?: () => void;
}

export function NewRoom({ id, initial = "", onDone, onCancel }: Props) {
  const [name, setName] = useState(initial);
  const [problem, setProblem] = useState<string>();
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (onCancel) input.current?.focus();
  }, []);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (!name.trim()) return setProblem("Give the room a name.");
    setBusy(true);
    setProblem(undefined);
    try {
      const made = await createRoom(name.trim(), id);
      onDone?.();
      drawer.value = undefined;
      go(made);
    } catch (error) {
      setProblem((error as Error).message);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form class="new-room" onSubmit={(event) => void submit(event)} data-testid="new-room-form" noValidate>
      <input
        ref={input}
        data-testid="new-room-name"
        aria-label="Name of the new room"
        placeholder="Name of the room"
        value={name}
        maxLength={ROOM_NAME_CHARS}
        onInput={(event) => setName(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape" || !onCancel) return;
          event.stopPropagation();
          onCancel();
        }}
      />
      <button class="primary" disabled={busy} data-testid="new-room-create">
        {busy ? "Creating…" : "Create"}
      </button>
      {onCancel && (
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
      )}
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </form>
  );
}
