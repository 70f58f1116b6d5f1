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

/** `mention` is a name: where `@name` stands outside of code, it is set off. */
export function Markdown({ text, mention }: { text: string; mention?: string | undefined }) {
  const html = useMemo(() => toHtml(text), [text]);
  const host = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    for (const block of host.current?.querySelectorAll("pre") ?? []) addCopyButton(block);
    for (const table of host.current?.querySelectorAll("table") ?? []) wrap(table);
    if (mention && host.current) setOff(host.current, mention);
  }, [html]);
  return <div class="md" ref={host} dangerouslySetInnerHTML={{ __html: html }} />;
}

function setOff(host: HTMLElement, name: string): void {
  const pattern = new RegExp(`(?<![\\w@./-])@${name.replace(/[^\w]/gu, "\\$&")}(?![\\w-])`, "giu");
  const walker = document.createTreeWalker(host, NodeFilter.SHOW_TEXT, (node) =>
    node.parentElement?.closest("code, a, button") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT,
  );
  const found: Text[] = [];
  while (walker.nextNode()) if ((walker.currentNode as Text).data.includes("@")) found.push(walker.currentNode as Text);
  for (const node of found) {
    const pieces: (string | Node)[] = [];
    let from = 0;
    for (const match of node.data.matchAll(pattern)) {
      const mark = document.createElement("span");
      mark.className = "mention";
      mark.textContent = match[0];
      pieces.push(node.data.slice(from, match.index), mark);
      from = match.index + match[0].length;
    }
    if (pieces.length > 0) node.replaceWith(...pieces, node.data.slice(from));
  }
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
