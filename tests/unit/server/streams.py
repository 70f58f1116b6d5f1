"""What an exec's log must hold, whatever stands behind it: a dict here, Valkey in integration."""

from unittest import mock

from hypothesis import strategies as st

from server import execlog as module
from server.execlog import ExecLog
from server.output import Kept

HEAD, TAIL, STORE = 16, 24, 20

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("print"), st.binary(min_size=1, max_size=40)),
        st.tuples(st.just("print"), st.binary(min_size=1, max_size=6)),
        st.tuples(st.just("store"), st.just(b"")),
        st.tuples(st.just("store twice"), st.just(b"")),
        st.tuples(st.just("store late"), st.just(b"")),
    ),
    max_size=24,
)
"""`twice` and `late`: the answer was lost and the commands were sent again, or still came later."""


class Dict:
    """The few commands of Redis that an exec's log uses, in a dict."""

    def __init__(self):
        self.keys = {}
        self.lives = {}

    async def pipeline(self, commands):
        return [self._run(*command) for command in commands]

    async def call(self, *command):
        return self._run(*command)

    def _run(self, name, key, *arguments):
        return getattr(self, f"_{name.lower()}")(key, *arguments)

    def _get(self, key):
        return self.keys.get(key)

    def _set(self, key, value, ex, life_s):
        assert ex == "EX"
        self.keys[key], self.lives[key] = value.encode(), life_s

    def _setrange(self, key, at, data):
        there = self.keys.get(key, b"").ljust(at, b"\0")
        self.keys[key] = there[:at] + data + there[at + len(data) :]

    def _strlen(self, key):
        return len(self.keys.get(key, b""))

    def _expire(self, key, life_s):
        assert key in self.keys
        self.lives[key] = life_s

    def _zadd(self, key, score, member):
        self.keys.setdefault(key, {})[member] = score

    def _zremrangebyscore(self, key, low, high):
        assert low == "-inf"
        assert high[0] == "("
        kept = {m: score for m, score in self.keys[key].items() if score >= int(high[1:])}
        self.keys[key] = kept

    def _zrange(self, key, start, stop):
        members = self.keys.get(key, {})
        ordered = sorted(members, key=lambda member: (members[member], member))
        return ordered[start : None if stop == -1 else stop + 1]


async def check_stream(store, steps):
    """Print and store as `steps` say; what is read must be right, and the head and tail there."""
    with mock.patch.object(module, "STORE_BYTES", STORE):
        log = ExecLog(store, head_bytes=HEAD, tail_bytes=TAIL, kept_s=60)
        writer, kept, printed = log.writer("blue", "x1", "stdout"), Kept(HEAD, TAIL), b""
        stored, late = set(), []
        for step, data in [*steps, ("end", b"")]:
            if step == "print":
                kept.add(len(printed), data)
                printed += data
                continue
            was, limit = writer.stored, TAIL if step == "end" else STORE
            commands = writer.commands(kept, last=step == "end")
            newest = max(len(printed) - limit, was, HEAD)
            stored |= set(range(was, min(HEAD, len(printed))))
            stored |= {at for at in range(newest, len(printed)) if kept.has(at, at + 1)}
            for _ in range(2 if step == "store twice" else 1):
                await log.store(commands)
            await log.store(late)
            late = commands if step == "store late" else []
        await log.store(late)
        await _check_read(log, printed, stored)


async def _check_read(log, printed, stored):
    wanted = {at for at in stored if at < HEAD} | set(sorted(stored)[-TAIL:])
    for start in range(0, len(printed), 7):
        at, found = start, set()
        for piece in await log.read("blue", "x1", "stdout", (start, len(printed) + 5)):
            assert piece.at == at < piece.end
            at = piece.end
            if piece.data is not None:
                assert piece.data == printed[piece.at : piece.end]
                found |= set(range(piece.at, piece.end))
        assert at == len(printed) + 5
        assert {at for at in wanted if at >= start} <= found
    ends = await log.stored_ends("blue", "x1")
    assert ends == ({"stdout": len(printed)} if printed else {})
