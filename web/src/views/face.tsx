/** Who someone is, at a glance: initials on a hue of their own, and marks for how commands stand. */
import { hueOf, initials, type Mark } from "../model/words";
import type { Participant } from "../protocol";

export function Face({ person, large = false }: { person: Participant; large?: boolean }) {
  const agent = person.kind === "agent";
  const { hue, deep } = hueOf(person.id);
  return (
    <span
      class={`face${large ? " lg" : ""}${agent ? " agent" : ""}${person.kind === "bot" ? " bot" : ""}${deep ? " deep" : ""}`}
      style={agent ? undefined : { "--h": hue }}
      aria-hidden="true"
    >
      {initials(person.name)}
    </span>
  );
}

const MARKS: { readonly [mark in Mark | "go"]: readonly [string, string] } = {
  ok: ["✓", "succeeded"],
  bad: ["✕", "failed"],
  stopped: ["■", "stopped"],
  go: ["", "running"],
};

/** A state as a shape and a colour. */
export function StateMark({ mark }: { mark: Mark | "go" }) {
  const [shape, word] = MARKS[mark];
  return (
    <span class={`mark ${mark}`} role="img" aria-label={word} title={word}>
      {shape}
    </span>
  );
}

const DOTS: { readonly [status: string]: readonly [string, string] } = {
  running: ["run", "Running"],
  starting: ["go", "Starting"],
  requested: ["go", "Starting"],
  stopping: ["go", "Stopping"],
  stopped: ["", "Stopped"],
  error: ["bad", "Failed"],
};

export const statusInWords = (status: string | undefined): string => (status ? (DOTS[status]?.[1] ?? status) : "Not started");

export function StatusDot({ status }: { status: string | undefined }) {
  const words = `Sandbox: ${statusInWords(status).toLowerCase()}`;
  return <span class={`dot ${DOTS[status ?? ""]?.[0] ?? ""}`} role="img" aria-label={words} title={words} />;
}
