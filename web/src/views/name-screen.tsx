/** The first screen: a name, and what this place is. */
import { useState } from "preact/hooks";
import { enter, nameProblem } from "../state/app";
import { route } from "../state/route";

/** PROTOCOL's bound of a name, in characters. */
const NAME_CHARS = 64;

export function Brand() {
  return (
    <span class="brand">
      <i aria-hidden="true" />
      Duet
    </span>
  );
}

export function NameScreen() {
  const [value, setValue] = useState("");
  const [problem, setProblem] = useState<string>();
  const submit = (event: Event): void => {
    event.preventDefault();
    const chosen = value.trim();
    if (!chosen) setProblem("Type the name that others will see.");
    else enter(chosen);
  };
  const shown = problem ?? nameProblem.value;
  return (
    <main class="welcome">
      <form class="sheet" onSubmit={submit} data-testid="name-form" noValidate>
        <Brand />
        <h1>{route.value ? "You're invited to a room" : "Work in one room, on one machine"}</h1>
        <p class="soft">
          Chat and run commands together. Everyone in a room shares one sandbox and sees each line as it is printed.
        </p>
        <label for="name">Your name</label>
        <input
          id="name"
          data-testid="name-input"
          value={value}
          maxLength={NAME_CHARS}
          autocomplete="nickname"
          autofocus
          aria-invalid={shown ? true : undefined}
          aria-describedby={shown ? "name-problem" : undefined}
          onInput={(event) => {
            setValue(event.currentTarget.value);
            setProblem(undefined);
          }}
        />
        {shown && (
          <p class="problem" id="name-problem" role="alert">
            {shown}
          </p>
        )}
        <button class="primary big" data-testid="name-submit">
          {route.value ? "Enter the room" : "Continue"}
        </button>
      </form>
    </main>
  );
}
