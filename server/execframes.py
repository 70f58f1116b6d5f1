"""The frames of an exec's output and result, made from pieces; who gets them is not known here."""

from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.results import ExecResult
from server.order import Order
from server.output import Joiner, Piece
from server.wire import Outgoing, Output


def output_frame(head: Mapping[str, Any], stream: str, piece: Piece, pos: int) -> Outgoing:
    """`exec.output` for a piece, or `exec.gap` where it holds no bytes and none are kept.

    `head` holds the exec and, where there is one, its room and the `ref` of who asked.
    """
    if piece.data is None:
        return gap_frame(head, stream, piece.at, piece.end, kept=False)
    fields = {"stream": stream, "at": piece.at, "size": len(piece.data), "pos": pos}
    return Output({"type": "exec.output", **head, **fields}, piece.data)


def gap_frame(
    head: Mapping[str, Any], stream: str, start: int, end: int, *, kept: bool
) -> Outgoing:
    """`exec.gap`: bytes that are not sent; `kept` tells whether they can be read."""
    fields = {"stream": stream, "from": start, "to": end, "kept": kept}
    return Outgoing({"type": "exec.gap", **head, **fields})


def kept_frames(
    head: Mapping[str, Any], pieces: Mapping[str, Iterable[Piece]], order: Order
) -> list[Outgoing]:
    """Kept pieces of an exec's streams as frames of the usual size, as they were printed."""
    parts = [
        (pos, stream, part)
        for stream, found in pieces.items()
        for piece in found
        for pos, part in order.split(stream, piece)
    ]
    return [
        output_frame(head, stream, cut, pos + cut.at - part.at)
        for pos, stream, part in sorted(parts, key=lambda item: item[0])
        for cut in _cuts(part)
    ]


def _cuts(piece: Piece) -> list[Piece]:
    """A piece in frames' sizes, cut between characters."""
    if piece.data is None:
        return [piece]
    joiner = Joiner(lambda: 0.0)
    joiner.skip(piece.at)
    return [*joiner.add(piece.data), *joiner.due(end=True)]


def result_fields(result: ExecResult) -> dict[str, Any]:
    """The result's fields on the wire, without output."""
    fields: dict[str, Any] = {"ok": result.ok}
    if result.exit_code is not None:
        fields["exitCode"] = result.exit_code
    if not result.ok:
        fields["reason"] = result.reason
        fields["message"] = result.message
        fields["retryable"] = result.retryable
    if result.signal is not None:
        fields["signal"] = result.signal
    if result.warnings:
        fields["warnings"] = list(result.warnings)
    return fields
