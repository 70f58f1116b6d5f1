/** The page's few icons, drawn on a grid of 16. They are decoration: a label stands beside each. */
const paths = {
  menu: "M2 4h12M2 8h12M2 12h12",
  people: "M6 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Zm-4.5 5.5c0-2.5 2-4 4.5-4s4.5 1.5 4.5 4M11 3.4a2.3 2.3 0 0 1 0 4.4M12.3 9.8c1.4.5 2.2 1.8 2.2 3.7",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  again: "M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3",
  chevron: "M4.500 6.500 8 10l3.500-3.500",
  down: "M8 3v9M4 8.5 8 12.5l4-4",
  link: "M6.5 9.5l3-3M7 5l1.8-1.8a2.8 2.8 0 0 1 4 4L11 9M9 11l-1.8 1.8a2.8 2.8 0 0 1-4-4L5 7",
  edit: "M3 13l.6-2.8 7.6-7.6 2.2 2.2-7.6 7.6zM9.8 4l2.2 2.2",
  trash: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.5 8.5h6l.5-8.5",
  smile: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM5.5 9.5c.6 1 1.5 1.5 2.5 1.5s1.900-.5 2.500-1.500M6 6.200v.3M10 6.200v.3",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1.500v1M8 13.500v1M1.500 8h1M13.500 8h1M3.400 3.400l.7.7M11.900 11.900l.7.7M3.400 12.600l.7-.7M11.900 4.100l.7-.7",
  moon: "M13.500 9.500A5.800 5.800 0 0 1 6.500 2.500a5.800 5.800 0 1 0 7 7Z",
  auto: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 2v12",
  check: "M3 8.5 6.5 12 13 4.5",
  stop: "M4.500 4.500h7v7h-7z",
  terminal: "M2 3h12v10H2zM4.500 6l2 2-2 2M8.500 10h3",
  plus: "M8 3v10M3 8h10",
  leave: "M6 2.500H3v11h3M10 5l3 3-3 3M13 8H6",
  warn: "M8 2.500 14.500 13.500h-13zM8 6.500v3M8 11.300v.3",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}
