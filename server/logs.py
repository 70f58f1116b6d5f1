"""Structured logs: one line per event, with room, session and exec ids where they are known.

What `sandbox` and the libraries log, by the standard library's own means, gets the same form.
"""

import logging
import sys
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

_OURS = "sandbox"
"""The package that logs without structlog: it is usable without the server."""


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]  # a class of its own, to be found again
    """The one that `configure` adds."""


def configure(level: str, form: str) -> None:
    """Send structlog and the libraries' own logs to stderr; `form` is `console` or `json`."""
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.format_exc_info,
    ]
    final: Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[*shared, final],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    _take_in_others([_name_part, *shared], final, number)


def _take_in_others(shared: "list[Processor]", final: "Processor", number: int) -> None:
    """Give the standard library's records our form; libraries say warnings and worse."""
    handler = _Handler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, final],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [one for one in root.handlers if not isinstance(one, _Handler)] + [handler]
    root.setLevel(max(number, logging.WARNING))
    logging.getLogger(_OURS).setLevel(number)
    # Peers that vanish or speak nonsense are everyday; the front door counts and answers them.
    for name in ("websockets", "aiohttp"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _name_part(_logger: object, _method: str, event: "EventDict") -> "EventDict":
    """Say which part a record of the standard library's belongs to, as `get` does."""
    event["part"] = event["_record"].name
    return event


def get(name: str) -> structlog.stdlib.BoundLogger:
    """A logger that names the part it belongs to."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(part=name)
    return logger
