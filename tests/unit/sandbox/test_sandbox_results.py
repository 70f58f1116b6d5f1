"""Reasons come from state: every row of PROTOCOL.md's table, and never ok without having seen it."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import errors
from sandbox.results import from_exit, lost, signal_name
from sandbox.spec import ExecSpec

SPEC = ExecSpec("e1", "true", timeout_ms=1500)


def end(**fields):
    return {
        "t": "exit", "x": "e1", "why": None, "ms": 7, "bytes": {"stdout": 3},
        "code": 0, "sig": None, "oom": False, **fields,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "reason", "retryable", "code", "signal"),
    [
        ({}, None, False, 0, None),
        ({"code": 3}, "command_failed", False, 3, None),
        ({"code": 137}, "command_failed", False, 137, None),
        ({"code": None, "sig": 15}, "command_failed", False, None, "TERM"),
        ({"code": None, "sig": 9}, "command_failed", False, None, "KILL"),
        ({"code": None, "sig": 9, "oom": True}, "out_of_memory", False, None, "KILL"),
        ({"code": 137, "oom": True}, "out_of_memory", False, 137, None),
        ({"code": None, "sig": 15, "why": "timeout"}, "timeout", True, None, "TERM"),
        ({"code": None, "sig": 9, "why": "cancelled"}, "cancelled", False, None, "KILL"),
        ({"code": 0, "why": "cancelled"}, "cancelled", False, 0, None),
        ({"code": None, "sig": 9, "why": "output_limit"}, "output_limit", False, None, "KILL"),
    ],
)
def test_the_table(fields, reason, retryable, code, signal):
    result = from_exit(SPEC, end(**fields))
    assert (result.reason, result.retryable) == (reason, retryable)
    assert (result.exit_code, result.signal) == (code, signal)
    assert result.ok is (reason is None)
    assert bool(result.message) is not result.ok
    assert (result.duration_ms, result.bytes) == (7, {"stdout": 3})


@pytest.mark.parametrize(
    ("number", "reason", "code"),
    [
        (errno.ENOENT, "command_failed", 127),
        (errno.EACCES, "command_failed", 126),
        (errno.EAGAIN, "sandbox_unavailable", None),
        (errno.ENOMEM, "sandbox_unavailable", None),
    ],
)
def test_a_command_that_could_not_be_started(number, reason, code):
    fields = {"t": "exit", "ms": 1, "bytes": {}, "why": None, "spawn": "why", "errno": number}
    result = from_exit(SPEC, fields)
    assert (result.reason, result.exit_code) == (reason, code)
    assert "why" in result.message


@pytest.mark.parametrize("broken", [{"code": "0"}, {"why": "nonsense"}, {"ms": None}])
def test_a_broken_end_is_not_ok(broken):
    try:
        result = from_exit(SPEC, end(**broken))
    except (KeyError, TypeError, ValueError):
        return
    assert not result.ok


@given(st.sampled_from(["sandbox_terminated", "sandbox_unavailable", "internal_error"]))
def test_what_nobody_saw_is_never_ok(reason):
    result = lost(reason, "gone", 5)
    assert not result.ok
    assert result.exit_code is None
    assert result.retryable is (reason != "internal_error")


def test_signal_names():
    assert [signal_name(n) for n in (None, 9, 15, 40)] == [None, "KILL", "TERM", "40"]


def every_class(base):
    for cls in base.__subclasses__():
        yield cls
        yield from every_class(cls)


def test_every_exception_carries_a_code_of_the_protocol():
    known = {
        "invalid", "unknown_sandbox", "sandbox_unavailable", "sandbox_terminated",
        "unavailable", "internal_error",
    }  # fmt: skip
    classes = list(every_class(errors.SandboxError))
    assert len(classes) >= 11
    for cls in classes:
        assert cls.code in known
        assert cls.__name__ in (errors.__doc__ or "")
