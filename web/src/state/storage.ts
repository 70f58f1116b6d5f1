/** The browser's storage, which may be blocked or full: the page works without it. */

export function read(key: string): string | undefined {
  try {
    return localStorage.getItem(`duet.${key}`) ?? undefined;
  } catch {
    return undefined;
  }
}

export function write(key: string, value: string | undefined): void {
  try {
    if (value === undefined || value === "") localStorage.removeItem(`duet.${key}`);
    else localStorage.setItem(`duet.${key}`, value);
  } catch {
    // Blocked or full: what would be remembered is forgotten with the page.
  }
}
