"""The hello of a runner that is met again: read, or refused."""

import pytest

from sandbox.errors import LinkBroken
from sandbox.runner.execs import Exec, Stream
from sandbox.survivors import RUNNER_VERSION, survivors


def hello(**changes):
    ex = Exec("e1", 1, 10**6, 5000)
    ex.streams.append(Stream(ex, 0, -1, 300))
    ex.streams[0].at, ex.input_at, ex.input_size = 120, 7, 3
    return {"t": "hello", "v": RUNNER_VERSION, "execs": [{**ex.row(), **changes}]}


def test_what_a_runner_says_is_understood():
    found = survivors(hello())["e1"]
    assert (found.printed, found.granted) == ({"stdout": 120}, {"stdout": 300})
    assert (found.written, found.timeout_ms, found.limit_bytes) == (10, 5000, 10**6)
    assert (found.done, found.terminal, found.takes_input) == (False, False, False)
    spec = found.spec()
    assert (spec.exec, spec.timeout_ms, spec.pty) == ("e1", 5000, None)


@pytest.mark.parametrize(
    "message",
    [
        {"t": "hello"},
        {"t": "hello", "v": RUNNER_VERSION - 1, "execs": []},
        {"t": "hello", "v": RUNNER_VERSION, "execs": [{}]},
        {"t": "hello", "v": RUNNER_VERSION, "execs": [5]},
        hello(age="soon"),
        hello(streams={"stdout": {"at": None, "granted": 0}}),
    ],
)
def test_what_is_no_runner_s_or_an_older_one_s_is_refused(message):
    with pytest.raises(LinkBroken):
        survivors(message)
