/** What people write, as markdown. Everything passes DOMPurify with a list of what is allowed;
 * nothing else in the page sets HTML. */
import DOMPurify from "dompurify";
import { Marked } from "marked";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { copy } from "../state/ui";

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    // Pictures from elsewhere would tell their host who reads the room; a link asks first.
    image: ({ href, text }) => `<a href="${escape(href)}">${escape(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
    // Written HTML is shown as it was written.
    html: ({ text }) => escape(text),
  },
});

function escape(text: string): string {
  const entities: { [char: string]: string } = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return text.replace(/[&<>"']/gu, (char) => entities[char]!);
}

const ALLOWED = {
  ALLOWED_TAGS: [
    ..."p br strong em del code pre blockquote ul ol li a h1 h2 h3 h4 h5 h6 hr".split(" "),
    ..."table thead tbody tr th td".split(" "),
  ],
  ALLOWED_ATTR: ["href", "title", "start", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/iu,
};

const purifier = DOMPurify();
purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

export function toHtml(text: string): string {
  return purifier.sanitize(marked.parse(text, { async: false }), ALLOWED);
}

export function Markdown({ text }: { text: string }) {
  const html = useMemo(() => toHtml(text), [text]);
  const host = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    for (const block of host.current?.querySelectorAll("pre") ?? []) addCopyButton(block);
    for (const table of host.current?.querySelectorAll("table") ?? []) wrap(table);
  }, [html]);
  return <div class="md" ref={host} dangerouslySetInnerHTML={{ __html: html }} />;
}

function addCopyButton(block: HTMLElement): void {
  const code = block.textContent ?? "";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", () => void copy(code, "Code copied"));
  const frame = wrap(block);
  frame.classList.add("code");
  frame.append(button);
}

/** Wide things scroll inside a frame of their own. */
function wrap(element: HTMLElement): HTMLElement {
  const frame = document.createElement("div");
  frame.className = "wide";
  element.replaceWith(frame);
  frame.append(element);
  return frame;
}
