"""Every wall around a sandbox, read from inside and from the engine, however the sandbox came to be."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from sandbox import containers
from sandbox.pool import Kind
from sandbox.spec import INSTANCE_TYPES, SandboxSpec
from tests.integration.sandbox.houses import Box, Houses

pytestmark = pytest.mark.asyncio(loop_scope="module")
KINDS = {
    "new": SandboxSpec("new", "debian", instance_type="basic"),
    "spare": SandboxSpec("spared", "workspace", instance_type="basic"),
    "resumed": SandboxSpec("resumed", "debian", instance_type="lite"),
    "strict": SandboxSpec("strict", "debian", instance_type="basic", profile="strict"),
    "alone": SandboxSpec("alone", "debian", instance_type="basic", network="none"),
}
BITS = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}
# One file system of the kernel's or the engine's own after the other; none holds files of the host.
PSEUDO = {"proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "overlay"}
FILES_OF_THE_ENGINE = {"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}


@dataclass
class Seen:
    box: Box
    strict: bool
    spec: SandboxSpec
    config: dict[str, Any]
    host: dict[str, Any]
    found: dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def home():
    houses = Houses()
    try:
        manager = await houses.manager(pool=1, pool_kinds=(Kind("workspace"),))
        await manager._pool.refill()
        yield manager
    finally:
        await houses.clean_up()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def seen(home, request):
    """One that runs at its own limits, and what the engine says of it."""
    spec = KINDS[request.param]
    box = Box(home, spec)
    spares = {spare.container for some in home._pool._spares.values() for spare in some}
    if request.param == "resumed":
        await Box(home, SandboxSpec(spec.id, "debian", instance_type="standard-2")).text("true")
        await home.kill(spec.id)
        await home.start(spec)
    await box.text("true")
    await home.settled(spec.id)
    found = await box.inspect()
    assert (found["Id"] in spares) is (request.param == "spare")
    return Seen(box, spec.profile == "strict", spec, found["Config"], found["HostConfig"], found)


async def test_capabilities(seen):
    wanted = set() if seen.strict else set(BITS)
    assert seen.host["CapDrop"] == ["ALL"]
    assert {name.removeprefix("CAP_") for name in seen.host["CapAdd"] or ()} == wanted
    assert seen.host["Privileged"] is False
    status = await seen.box.text("grep ^Cap /proc/self/status")
    masks = {
        name: int(mask, 16) for name, mask in (line.split(":\t") for line in status.splitlines())
    }
    allowed = sum(1 << BITS[name] for name in wanted)
    assert masks["CapBnd"] == allowed
    assert masks["CapEff"] == masks["CapPrm"] == allowed
    assert masks["CapAmb"] == 0


async def test_no_new_privileges_and_seccomp(seen):
    assert seen.host["SecurityOpt"] == ["no-new-privileges"]  # and no word of another seccomp
    assert seen.found["AppArmorProfile"] != "unconfined"
    status = await seen.box.text("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status")
    assert status.split() == ["NoNewPrivs:", "1", "Seccomp:", "2"]


async def test_memory_and_no_swap_beyond_it(seen):
    wanted = INSTANCE_TYPES[seen.spec.instance_type].memory_bytes
    assert seen.host["Memory"] == seen.host["MemorySwap"] == wanted
    assert not seen.host["OomKillDisable"]
    text = await seen.box.text(
        "cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes memory.max 2>/dev/null;"
        "cat memory/memory.memsw.limit_in_bytes 2>/dev/null; cat memory.swap.max 2>/dev/null; true"
    )
    first, *swap = text.split()
    assert int(first) == wanted
    assert swap in ([], [str(wanted)], ["0"])  # version 1 counts both, version 2 swap alone


async def test_cpu(seen):
    wanted = INSTANCE_TYPES[seen.spec.instance_type].nano_cpus
    assert seen.host["NanoCpus"] == wanted
    text = await seen.box.text(
        "cd /sys/fs/cgroup; cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us 2>/dev/null || cat cpu.max"
    )
    quota, period = map(int, text.split())
    assert quota / period == pytest.approx(wanted / 1e9)


async def test_processes_and_open_files(seen):
    assert seen.host["PidsLimit"] == 1024
    limits = {one["Name"]: (one["Soft"], one["Hard"]) for one in seen.host["Ulimits"]}
    assert limits == {"nofile": (1024, 16_384), "core": (0, 0)}
    text = await seen.box.text(
        "cd /sys/fs/cgroup; cat pids/pids.max 2>/dev/null || cat pids.max;"
        "ulimit -Sn; ulimit -Hn; ulimit -Hc"
    )
    assert text.split() == ["1024", "1024", "16384", "0"]
    result, _ = await seen.box.run("ulimit -Hn 16385")
    assert result.reason == "command_failed"


async def test_no_files_of_the_host_and_not_its_engine(seen):
    volumes = [one["Source"] for one in seen.host.get("Mounts") or ()]
    name = containers.container_name(seen.box.manager._config.owner, seen.spec.id)
    assert volumes == ([name] if seen.strict else [])
    assert not seen.host["Binds"]
    assert not seen.host["Devices"]
    assert not seen.host["VolumesFrom"]
    assert {one["Type"] for one in seen.found["Mounts"]} <= {"volume"}
    assert "docker.sock" not in json.dumps(seen.found)
    mounts = [line.split() for line in (await seen.box.text("cat /proc/self/mounts")).splitlines()]
    others = {where for _, where, kind, *_ in mounts if kind not in PSEUDO}
    assert others - FILES_OF_THE_ENGINE == ({"/workspace"} if seen.strict else set())
    sockets = (
        "find / -xdev -type s 2>/dev/null; find /run /var/run -name '*.sock' 2>/dev/null; true"
    )
    assert await seen.box.text(sockets) == ""
    assert (
        await seen.box.text("ls /dev/sd* /dev/vd* /dev/nvme* /dev/kmsg /dev/mem 2>/dev/null; true")
        == ""
    )


async def test_name_spaces_are_its_own(seen):
    for name in ("PidMode", "UTSMode"):
        assert seen.host[name] == ""
    assert seen.host["IpcMode"] == "private"
    assert seen.config["Hostname"] == "sandbox"
    assert await seen.box.text("hostname; cat /proc/1/comm") == "sandbox\npython3\n"


async def test_its_network(seen):
    alone = seen.spec.network == "none"
    wanted = "none" if alone else containers.NETWORK
    assert seen.host["NetworkMode"] == wanted
    assert list(seen.found["NetworkSettings"]["Networks"]) == [wanted]
    assert not seen.host["PortBindings"]
    devices = (await seen.box.text("ls /sys/class/net")).split()
    assert devices == (["lo"] if alone else ["eth0", "lo"])


async def test_who_it_is_and_what_it_may_write(seen):
    assert seen.host["ReadonlyRootfs"] is seen.strict
    assert seen.config["User"] == ("1000:1000" if seen.strict else "0:0")
    assert await seen.box.text("id -u") == ("1000\n" if seen.strict else "0\n")
    result, _ = await seen.box.run("touch /etc/mark /usr/mark /var/mark")
    assert result.ok is not seen.strict
    assert await seen.box.text("touch /workspace/mark && echo written") == "written\n"


async def test_nothing_is_logged_and_nothing_starts_it_again(seen):
    assert seen.host["LogConfig"]["Type"] == "none"
    assert seen.host["RestartPolicy"]["Name"] == "no"
    assert seen.host["AutoRemove"] is False
    assert seen.config["WorkingDir"] == "/"


async def test_the_kernel_s_own_switches_are_out_of_reach(seen):
    for attempt in (
        "echo 1 > /proc/sys/kernel/panic",
        "echo c > /proc/sysrq-trigger",
        "echo x > /sys/kernel/uevent_helper",
        "mount -t tmpfs none /mnt",
        "unshare -Ur true",
        "nsenter -t 1 -m true",
        "mknod /tmp/disk b 8 0",
        "dmesg",
    ):
        result, _ = await seen.box.run(attempt)
        assert result.reason == "command_failed", attempt
