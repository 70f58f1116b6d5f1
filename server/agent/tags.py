"""The parser of `<run>…</run>` in a model's text: a pure streaming state machine.

Text comes out unchanged and undelayed; only what may be the beginning of a tag is held back.
What a reader is shown as code (fences, `inline`) is text. What is run is `loop`'s business.
"""

import re
from dataclasses import dataclass

OPEN, CLOSE = "<run>", "</run>"
_FENCES = ("`", "~")
_FENCE_MIN = 3
"""CommonMark: a fence is at least three marks."""
_LEAD = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+[ \t>]*)*")
"""What may stand before a fence: it may be in lists and quotes, where no indent is too deep."""
_LEAD_MAX = 64
"""Characters; deeper in nobody reads, and what is kept of a line is bounded."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What stood between the tags. `problem` says why it does not run, where it does not.

    `at` is its place: the characters shown before it. NUL does not count, nobody is shown one.
    """

    command: str
    problem: str | None = None
    at: int = 0


NESTED = "a <run> inside a <run> is not run; give each command a tag of its own"
UNCLOSED = "the <run> was never closed, so it was not run"
EMPTY = "the <run> was empty"


class TagParser:
    """Feed it deltas; it gives text for people, and collects what is wanted in `wanted`."""

    def __init__(self) -> None:
        self.wanted: list[Wanted] = []
        self._held = ""
        self._body: list[str] = []
        self._depth = 0
        self._nested = False
        self._shown = 0
        self._code = _Code()

    def feed(self, delta: str) -> str:
        """The text that can be shown now."""
        shown: list[str] = []
        for char in delta:
            self._take(char, shown)
        return "".join(shown)

    def end(self) -> str:
        """The rest of the text; what is still open is never run."""
        held, self._held = self._held, ""
        if not self._depth:
            self._shown += len(held)
            return held
        self._body.append(held)
        self.wanted.append(Wanted("".join(self._body).strip(), UNCLOSED, self._shown))
        self._depth = 0
        return ""

    def _take(self, char: str, shown: list[str]) -> None:
        if not self._depth and self._code.inside:
            self._emit(char, shown)
            return
        self._held += char
        while self._held and not self._is_prefix():
            first, self._held = self._held[0], self._held[1:]
            self._emit(first, shown)
        if self._held == OPEN:
            self._opened()
        elif self._held == CLOSE:
            self._closed()

    def _is_prefix(self) -> bool:
        return OPEN.startswith(self._held) or CLOSE.startswith(self._held)

    def _emit(self, char: str, shown: list[str]) -> None:
        if self._depth:
            self._body.append(char)
            return
        self._code.see(char)
        self._shown += char != "\0"
        shown.append(char)

    def _opened(self) -> None:
        if self._depth:
            self._body.append(OPEN)
            self._nested = True
        self._held = ""
        self._depth += 1

    def _closed(self) -> None:
        self._held = ""
        if not self._depth:
            return  # a stray end: a tag, so not shown, and nothing to run
        self._depth -= 1
        if self._depth:
            self._body.append(CLOSE)
            return
        command, nested = "".join(self._body).strip(), self._nested
        self._body, self._nested = [], False
        problem = NESTED if nested else (None if command else EMPTY)
        self.wanted.append(Wanted(command, problem, self._shown))


class _Code:
    """Whether the text so far stands inside a fence, or inside `inline` code on its line."""

    def __init__(self) -> None:
        self._fence = _Marks()
        self._line = _Marks()
        self._run = 0
        self._inline = 0

    @property
    def inside(self) -> bool:
        """Of the next character, which is no backtick (those are text wherever they stand)."""
        return bool(self._fence.count or self._line.opens or self._after_run())

    def see(self, char: str) -> None:
        if char == "\n":
            self._end_line()
            return
        self._line.see(char)
        if self._fence.count:
            return
        if char == "`":
            self._run += 1
        elif self._run:
            self._inline, self._run = self._after_run(), 0

    def _after_run(self) -> int:
        """The length of the open inline code's marks, once the present run of them has ended."""
        if not self._run:
            return self._inline
        if not self._inline:
            return self._run
        return 0 if self._inline == self._run else self._inline

    def _end_line(self) -> None:
        line, self._line = self._line, _Marks()
        if not self._fence.count:
            self._fence = line if line.opens else _Marks()
        elif line.closes(self._fence):
            self._fence = _Marks()
        self._run, self._inline = 0, 0


class _Marks:
    """How a line begins: what stands before its fence marks, these, and what follows them."""

    def __init__(self) -> None:
        self.count = 0
        self._lead = ""
        self._mark = ""
        self._bare = True
        self._ticks = False
        self._gap = False

    def see(self, char: str) -> None:
        if char == self._mark and self.count and not self._gap:
            self.count += 1
        elif self._mark:
            self._after(char)
        elif char not in _FENCES and len(self._lead) < _LEAD_MAX:
            self._lead += char
        else:
            self._mark = char
            self.count = 1 if char in _FENCES and _LEAD.fullmatch(self._lead) else 0

    def _after(self, char: str) -> None:
        self._gap = True
        self._bare = self._bare and char in " \t"
        self._ticks = self._ticks or char == "`"

    @property
    def opens(self) -> bool:
        return self.count >= _FENCE_MIN and not (self._mark == "`" and self._ticks)

    def closes(self, fence: "_Marks") -> bool:
        same = self._mark == fence._mark  # noqa: SLF001 - one of its own kind
        begins = not self._lead.strip(" \t>")
        return same and begins and self._bare and self.count >= max(fence.count, _FENCE_MIN)
