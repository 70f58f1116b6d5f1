/** The left side: rooms, and who you are. */
import { useState } from "preact/hooks";
import { runningExecs } from "../model/room";
import { current, me, signOut } from "../state/app";
import { rooms, roomsError, roomsLoaded, sandboxStatus } from "../state/rooms";
import { onLink, pathOf } from "../state/route";
import { drawer, setTheme, theme, type Theme } from "../state/ui";
import type { RoomInfo } from "../protocol";
import { Face, StatusDot } from "./face";
import { Icon, type IconName } from "./icons";
import { Brand } from "./name-screen";
import { NewRoom } from "./new-room";

export function RoomsPanel() {
  const [making, setMaking] = useState(false);
  return (
    <nav id="rooms" tabIndex={-1} class={`panel left${drawer.value === "rooms" ? " open" : ""}`} aria-label="Rooms" data-testid="rooms-panel">
      <a
        class="brand-link"
        href="/"
        onClick={(event) => {
          onLink(event, undefined);
          drawer.value = undefined;
        }}
      >
        <Brand />
      </a>
      <CloseDrawer />
      <h2>Rooms</h2>
      <ul class="rooms" data-testid="room-list">
        {rooms.value.map((room) => (
          <RoomLink key={room.id} room={room} on={current.value?.id === room.id} />
        ))}
      </ul>
      {roomsLoaded.value && rooms.value.length === 0 && !roomsError.value && <p class="soft pad">No rooms yet. Make the first one.</p>}
      {roomsError.value && (
        <p class="problem pad" role="status">
          The list of rooms can't be read: {roomsError.value}
        </p>
      )}
      {making ? (
        <NewRoom onDone={() => setMaking(false)} onCancel={() => setMaking(false)} />
      ) : (
        <button class="dashed" data-testid="new-room" onClick={() => setMaking(true)}>
          <Icon name="plus" /> New room
        </button>
      )}
      <span class="grow" />
      {me.value && (
        <div class="me">
          <Face person={me.value} />
          <span class="cut" data-testid="my-name">
            {me.value.name}
          </span>
          <small>you</small>
          <ThemeButton />
          <button class="icon-only" title="Use another name" aria-label="Leave and use another name" onClick={signOut}>
            <Icon name="leave" />
          </button>
        </div>
      )}
    </nav>
  );
}

export function CloseDrawer() {
  return (
    <button class="icon-only close" aria-label="Close" data-testid="close-drawer" onClick={() => (drawer.value = undefined)}>
      <Icon name="close" />
    </button>
  );
}

/** The list is read now and then; of the room that is looked at we know better. */
function liveOf(room: RoomInfo, on: boolean): { running: number; status: string | undefined } {
  const state = on ? current.value?.state.value : undefined;
  if (!state?.joined) return { running: room.running ?? 0, status: sandboxStatus(room) };
  return { running: runningExecs(state).length, status: state.sandbox?.status ?? sandboxStatus(room) };
}

function RoomLink({ room, on }: { room: RoomInfo; on: boolean }) {
  const { running, status } = liveOf(room, on);
  return (
    <li>
      <a
        class={`room${on ? " on" : ""}`}
        href={pathOf(room.id)}
        aria-current={on ? "page" : undefined}
        data-testid="room-link"
        data-room={room.id}
        onClick={(event) => {
          onLink(event, room.id);
          drawer.value = undefined;
        }}
      >
        <StatusDot status={status} />
        <b>{room.name || room.id}</b>
        {running > 0 && (
          <span class="count" title={`${running} running`}>
            <i class="mark go" aria-hidden="true" />
            {running}
            <span class="sr"> running</span>
          </span>
        )}
      </a>
    </li>
  );
}

const NEXT: { readonly [now in Theme]: readonly [Theme, IconName, string] } = {
  system: ["light", "auto", "as the system"],
  light: ["dark", "sun", "light"],
  dark: ["system", "moon", "dark"],
};

export function ThemeButton() {
  const [next, icon, words] = NEXT[theme.value];
  return (
    <button class="icon-only" data-testid="theme" title={`Theme: ${words}`} aria-label={`Theme: ${words}. Change it.`} onClick={() => setTheme(next)}>
      <Icon name={icon} />
    </button>
  );
}
