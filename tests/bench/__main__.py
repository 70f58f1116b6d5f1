"""`make bench`: every measurement of the project in one table, beside its reference.

Exit code 0 whatever the figures are: these machines are noisy, and a benchmark is no test.
"""

import sys
from collections.abc import Awaitable, Callable

import uvloop

from tests.bench import commands, neighbours, rooms
from tests.bench.harness import Process, Row, duet

Measure = Callable[[Process], Awaitable[Row | list[Row]]]


async def main(wanted: list[str]) -> None:
    rows: list[Row] = []
    # Two whole CPUs: a quota below what the machine has would be what is measured.
    with duet(room_instance_type="standard-3") as server:
        measures: dict[str, Callable[[], Awaitable[Row | list[Row]]]] = {
            "warm": lambda: commands.warm(server),
            "first": commands.first,
            "first-byte": lambda: commands.first_byte(server),
            "at-once": lambda: commands.at_once(server),
            "resume": lambda: commands.resume(server),
            "flood": commands.flood,
            "frozen": commands.frozen_viewer,
            "fork-bomb": neighbours.fork_bomb,
            "fan-out": lambda: rooms.fan_out(server),
            "idle": rooms.idle_members,
        }
        for name, measure in measures.items():
            if wanted and name not in wanted:
                continue
            print(f"measuring {name} …", file=sys.stderr, flush=True)
            found = await measure()
            rows += found if isinstance(found, list) else [found]
    print(_table(rows))


def _table(rows: list[Row]) -> str:
    head = ("what", "value", "reference", "ratio", "target", "met", "note")
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    reference = (
        ""
        if row.reference_value is None
        else f"{row.reference}: {row.reference_value:.1f} {row.unit}"
    )
    met = "" if row.met is None else "yes" if row.met else "NO"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    value = f"{row.value:.1f} {row.unit}"
    return row.name, value, reference, ratio, row.target, met, row.note


uvloop.run(main(sys.argv[1:]))
