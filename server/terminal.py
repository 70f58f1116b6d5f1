"""What of a terminal's output must not reach viewers: sequences that make their terminals answer.

A viewer's terminal would type its answer into the shared one, once for each viewer. Such bytes are
replaced by NULs, which terminals ignore, so that byte offsets stay what they are. Pure.
"""

import re

_PARTIAL_MAX = 256
"""An unfinished sequence longer than this is no query; it is let go."""

# ECMA-48 and xterm's control sequences: each of these asks the terminal for a report. Every part
# is matched in one way only (`*+`), so that no output makes the search slow.
_QUERIES = re.compile(
    rb"""
    \x05                                        # ENQ: answerback
  | \x1bZ                                       # DECID
  | \x1b\[ [0-9;?>=]* n                         # DSR: status, cursor position
  | \x1b\[ [0-9;?>=]* c                         # DA: what are you
  | \x1b\[ [0-9;]* x                            # DECREQTPARM
  | \x1b\[ \?? [0-9;]* \$ p                     # DECRQM: is a mode set
  | \x1b\[ > [0-9]* q                           # XTVERSION
  | \x1b\[ \? u                                 # keyboard protocol query
  | \x1b\[ (?:1[1345689]|2[01]) (?:;[0-9]*)* t  # XTWINOPS: reports of the window
  | \x1bP [+$] q [^\x07\x1b]*+ (?:\x07|\x1b\\)  # XTGETTCAP, DECRQSS
  | \x1b\] (?:4|5|1[0-9]|52) ; (?P<body> [^\x07\x1b]*+) (?:\x07|\x1b\\)  # OSC: colours, clipboard
    """,
    re.VERBOSE,
)
# The beginning of anything above, at the very end of what came so far.
_PARTIAL = re.compile(
    rb"\x1b(?:\[[0-9;?>=$ ]*|P(?:[+$](?:q[^\x07\x1b]*\x1b?)?)?|\](?:[0-9][^\x07\x1b]*\x1b?)?)?\Z"
)


class AnswerFilter:
    """Replaces queries in a stream that comes in pieces; holds back what may become one."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """The bytes that may go on now, as many as came in, less those held back."""
        data = _QUERIES.sub(_blank, self._held + data)
        partial = _PARTIAL.search(data[-_PARTIAL_MAX:])
        size = 0 if partial is None else len(partial.group())
        keep = len(data) - size
        self._held = data[keep:]
        return data[:keep]

    def flush(self) -> bytes:
        """The end of the stream: what was held is no query any more."""
        held, self._held = self._held, b""
        return held


def _blank(found: re.Match[bytes]) -> bytes:
    """NULs for a query. An OSC asks only where one of its fields is a question mark."""
    body = found["body"]
    if body is not None and b"?" not in body.split(b";"):
        return found.group()
    return bytes(len(found.group()))
