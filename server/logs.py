"""Structured logs: one line per event, with room, session and exec ids where they are known."""

import logging
import sys
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from structlog.typing import Processor


def configure(level: str, form: str) -> None:
    """Send structlog and the libraries' own logs to stderr; `form` is `console` or `json`."""
    number = logging.getLevelNamesMapping()[level.upper()]
    final: Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            final,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=max(number, logging.WARNING), format="%(name)s: %(message)s")
    # Peers that vanish or speak nonsense are everyday; the front door counts and answers them.
    for name in ("websockets", "aiohttp"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def get(name: str) -> structlog.stdlib.BoundLogger:
    """A logger that names the part it belongs to."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(part=name)
    return logger
