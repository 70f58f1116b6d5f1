"""What may be asked for, and what can't get into names, labels and limits."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import containers
from sandbox.errors import InvalidSpec
from sandbox.spec import (
    IMAGES,
    INSTANCE_TYPES,
    MIB,
    PROFILES,
    ExecSpec,
    SandboxSpec,
    sandbox_id,
    signal_number,
)

specs = st.builds(
    SandboxSpec,
    id=st.from_regex(r"[a-z0-9][a-z0-9_-]{0,79}", fullmatch=True),
    image=st.sampled_from(IMAGES),
    instance_type=st.sampled_from(sorted(INSTANCE_TYPES)),
    network=st.sampled_from([None, "none"]),
    profile=st.sampled_from(PROFILES),
    runtime=st.sampled_from([None, "runsc"]),
)


@given(st.text(max_size=90))
def test_an_id_is_safe_or_refused(raw):
    try:
        name = sandbox_id(raw)
    except InvalidSpec:
        return
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,79}", name)
    assert sandbox_id(name) == name


def test_ids_are_trimmed_and_lower_cased():
    assert SandboxSpec("  My-Box ").id == "my-box"


@pytest.mark.parametrize("raw", ["", "..", "a/b", "a b", "-a", "a" * 81, "a\n", "ä", "a\0"])
def test_bad_ids(raw):
    if raw == "a\n":
        assert sandbox_id(raw) == "a"
        return
    with pytest.raises(InvalidSpec):
        sandbox_id(raw)


@pytest.mark.parametrize(
    "fields",
    [
        {"image": "alpine"},
        {"instance_type": "huge"},
        {"network": "host"},
        {"profile": "none"},
    ],
)
def test_what_is_not_in_the_tables_is_refused(fields):
    with pytest.raises(InvalidSpec) as caught:
        SandboxSpec("a", **fields)
    assert caught.value.field in fields


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"command": "true", "argv": ("true",)},
        {"command": " \n "},
        {"command": "a\0b"},
        {"command": "\ud800"},
        {"command": "x" * 200_000},
        {"argv": ()},
        {"argv": ("",)},
        {"argv": ("a", "b\0")},
        {"command": "true", "cwd": "\0"},
        {"command": "true", "env": {"A=B": "c"}},
        {"command": "true", "env": {"": "c"}},
        {"command": "true", "env": {"A": "\0"}},
        {"command": "true", "timeout_ms": 0},
        {"command": "true", "output_limit_bytes": 0},
        {"command": "true", "pty": (0, 24)},
        {"command": "true", "pty": (80, 5000)},
        {"command": "true", "exec": "a b"},
    ],
)
def test_bad_commands(fields):
    with pytest.raises(InvalidSpec):
        ExecSpec(**{"exec": "e1", **fields})


def test_the_environment_is_not_in_the_repr():
    spec = ExecSpec("e1", "true", env={"TOKEN": "secret"})
    assert "secret" not in repr(spec)


@pytest.mark.parametrize(("name", "number"), [("TERM", 15), ("sigint", 2), ("9", 9), ("USR1", 10)])
def test_signals(name, number):
    assert signal_number(name) == number


@pytest.mark.parametrize("name", ["", "0", "65", "-1", "NOPE", "SIG_DFL", "9" * 5000])
def test_unknown_signals(name):
    with pytest.raises(InvalidSpec):
        signal_number(name)


@given(specs)
def test_labels_say_what_a_container_was_made_from(spec):
    assert containers.spec_from_labels(containers.labels("me", spec)) == spec


@given(specs, st.integers(1, 64))
def test_limits_never_exceed_the_engine_s(spec, cpus):
    for starting in (True, False):
        limits = containers.limits(spec, cpus, starting=starting)
        assert 0 < limits["NanoCpus"] <= cpus * 10**9
        assert limits["Memory"] == limits["MemorySwap"]
    assert containers.limits(spec, cpus)["NanoCpus"] <= INSTANCE_TYPES[spec.instance_type].nano_cpus


@given(specs)
def test_every_container_is_hardened(spec):
    config = containers.create_config("me", spec, 8)
    host = config["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert set(host["CapAdd"]) <= {
        "CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL",
    }  # fmt: skip
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["LogConfig"] == {"Type": "none"}
    assert host["PidsLimit"] > 0
    assert "Binds" not in host
    assert not host.get("Privileged")
    assert all(mount["Type"] == "volume" for mount in host.get("Mounts", ()))
    sized = re.findall(r"size=(\d+)", str(host.get("Tmpfs", "")))
    assert host["ShmSize"] + sum(map(int, sized)) <= host["Memory"] // 4
    if spec.profile == "strict":
        assert host["ReadonlyRootfs"]
        assert host["CapAdd"] == []
        assert config["User"] == "1000:1000"


def test_the_table_of_instance_types():
    lite, four = INSTANCE_TYPES["lite"], INSTANCE_TYPES["standard-4"]
    assert (lite.nano_cpus, lite.memory_bytes) == (62_500_000, 256 * MIB)
    assert (four.nano_cpus, four.memory_bytes) == (4 * 10**9, 12 * 1024 * MIB)
