"""A client as PROTOCOL.md lets it be: it checks that output comes without a hole, and keeps it."""

from tests.unit.server.frames import data_of


class Viewer:
    """What one session knows of one exec's streams."""

    def __init__(self):
        self.have = {}
        self.bytes = {}
        self.gaps = {}

    def take(self, frame):
        stream = frame["stream"]
        have = self.have.get(stream, 0)
        if frame["type"] == "exec.gap":
            start, end = frame["from"], frame["to"]
            assert start <= have, f"a hole before {frame}"
            assert start < end
            self.gaps.setdefault(stream, []).append((start, end, frame["kept"]))
        else:
            data = data_of(frame)
            start, end = frame["at"], frame["at"] + frame["size"]
            assert start <= have, f"a hole before {frame} at {have}"
            assert len(data) == frame["size"] > 0
            for at, byte in enumerate(data, start):
                assert self.bytes.setdefault(stream, {}).setdefault(at, byte) == byte
        self.have[stream] = max(have, end)

    def complete(self, printed):
        """Every byte that was printed was shown or told as a gap, and was the right one."""
        assert self.have == {stream: len(data) for stream, data in printed.items() if data}
        for stream, data in printed.items():
            for at, byte in self.bytes.get(stream, {}).items():
                assert data[at] == byte
            gone = {at for a, b, _ in self.gaps.get(stream, ()) for at in range(a, b)}
            assert gone | set(self.bytes.get(stream, ())) == set(range(len(data)))
