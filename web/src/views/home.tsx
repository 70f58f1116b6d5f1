/** The page without a room: which ones there are, and the way to a new one. */
import { me } from "../state/app";
import { rooms, roomsError, roomsLoaded } from "../state/rooms";
import { onLink, pathOf } from "../state/route";
import { NewRoom } from "./new-room";
import { DrawerButton } from "./room";

export function Home() {
  const none = roomsLoaded.value && rooms.value.length === 0;
  return (
    <main class="room" id="main" tabIndex={-1}>
      <header class="bar only-narrow">
        <DrawerButton which="rooms" label="Rooms" />
        <h1>Duet</h1>
      </header>
      <div class="welcome inner" data-testid="home">
        <div class="sheet">
          <h2>{me.value ? `Hello, ${me.value.name}` : "Hello"}</h2>
          <p class="soft">{none ? "Make the first room. It gets a sandbox of its own, and a link you can share." : "Choose a room, or make a new one."}</p>
          <NewRoom />
          {rooms.value.length > 0 && (
            <ul class="choices">
              {rooms.value.map((room) => (
                <li key={room.id}>
                  <a href={pathOf(room.id)} onClick={(event) => onLink(event, room.id)}>
                    <b>{room.name || room.id}</b>
                    <span class="soft">
                      {[room.description, room.members ? `${room.members} here` : ""].filter(Boolean).join(" · ")}
                    </span>
                  </a>
                </li>
              ))}
            </ul>
          )}
          {roomsError.value && (
            <p class="problem" role="status">
              {roomsError.value}
            </p>
          )}
        </div>
      </div>
    </main>
  );
}
