/** The whole page: banner, panels, the middle, and what closes drawers. */
import { Component, type ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { connection, current, knownIn, link, wasOpen } from "../state/app";
import { route } from "../state/route";
import { drawer, notice, now } from "../state/ui";
import { DetailsPanel } from "./details-panel";
import { Home } from "./home";
import { NameScreen } from "./name-screen";
import { Room } from "./room";
import { RoomsPanel } from "./rooms-panel";

export function Shell() {
  if (!knownIn.value) return <NameScreen />;
  const session = route.value ? current.value : undefined;
  const problem = session?.problem.value;
  const inRoom = session !== undefined && (!problem || problem.passing);
  return (
    <div class={`shell${inRoom ? "" : " wide"}`}>
      {inRoom && (
        <a class="skip" href="#composer" inert={drawer.value !== undefined}>
          Skip to the composer
        </a>
      )}
      <RoomsPanel />
      <div class="middle" inert={drawer.value !== undefined}>
        <LinkBanner />
        <Boundary key={session?.id ?? ""}>{session ? <Room session={session} key={session.id} /> : <Home />}</Boundary>
      </div>
      {inRoom && <DetailsPanel session={session} />}
      <Curtain />
      <Notice />
    </div>
  );
}

/** One per room: what breaks in one leaves the rest of the page alive. */
class Boundary extends Component<{ children: ComponentChildren }, { failed?: Error }> {
  override state: { failed?: Error } = {};
  override componentDidCatch(error: Error): void {
    console.error(error);
    this.setState({ failed: error });
  }
  override render() {
    if (!this.state.failed) return this.props.children;
    return (
      <main class="welcome inner">
        <div class="sheet" role="alert">
          <h2>This room could not be drawn</h2>
          <p class="soft">Reload the page to try again. What was said and run is on the server.</p>
          <button onClick={() => location.reload()}>Reload</button>
        </div>
      </main>
    );
  }
}

function LinkBanner() {
  const state = link.value;
  if (state.phase === "open") return null;
  if (state.phase === "connecting" && !wasOpen.value && state.attempt === 0) return null;
  const stopped = state.phase === "stopped";
  const seconds = state.phase === "waiting" ? Math.max(0, Math.ceil((state.untilTs - now.value) / 1000)) : 0;
  return (
    <div class={`banner${stopped ? " bad" : ""}`} role="status" data-testid="banner" data-phase={state.phase}>
      <span>
        {state.phase === "connecting" && "Connecting…"}
        {state.phase === "waiting" && `${wasOpen.value ? "Connection lost" : "The server can't be reached"}. `}
        {stopped && `Disconnected: ${state.why}`}
        {state.phase === "waiting" && <span aria-hidden="true">{seconds > 0 ? `Trying again in ${seconds} s.` : "Trying again…"}</span>}
      </span>
      {state.phase !== "connecting" && (
        <button class="small" data-testid="reconnect" onClick={() => connection.reconnector.now()}>
          {stopped ? "Connect again" : "Try now"}
        </button>
      )}
    </div>
  );
}

/** Drawers behave as dialogs: focus goes in and comes back, Escape and a click beside them close. */
function Curtain() {
  const open = drawer.value;
  useEffect(() => {
    if (!open) return;
    document.getElementById(open)?.focus();
    const close = (): void => void (drawer.value = undefined);
    const onKey = (event: KeyboardEvent): void => {
      if (event.key === "Escape") close();
    };
    const wide = matchMedia("(min-width: 1081px)");
    addEventListener("keydown", onKey);
    wide.addEventListener("change", close);
    return () => {
      removeEventListener("keydown", onKey);
      wide.removeEventListener("change", close);
      // After the middle is no longer inert.
      setTimeout(() => document.querySelector<HTMLElement>(`[aria-controls="${open}"]`)?.focus());
    };
  }, [open]);
  if (!open) return null;
  return <div class="curtain" onClick={() => (drawer.value = undefined)} />;
}

function Notice() {
  const shown = notice.value;
  return (
    <div class={`notice${shown ? " on" : ""}${shown?.bad ? " bad" : ""}`} role="status" data-testid="notice">
      {shown?.text}
    </div>
  );
}
