// Runs before the first paint: a theme that was chosen by hand must not flash in the other one.
// A classic script of its own, because a module would run too late.
try {
  const theme = localStorage.getItem("duet.theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is blocked: the system's preference stands.
}
