"""What a sandbox may not do, read from inside and from the engine."""

import asyncio

import pytest

from sandbox.spec import SandboxSpec
from tests.integration.sandbox.houses import Box, Houses

pytestmark = pytest.mark.asyncio(loop_scope="module")
ALLOWED = {0, 1, 3, 5, 6, 7}  # CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID


async def test_capabilities_and_privileges(box):
    status = await box.text("cat /proc/self/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for name in ("CapEff", "CapPrm", "CapBnd"):
        assert {n for n in range(64) if int(fields[name], 16) >> n & 1} == ALLOWED
    assert int(fields["CapAmb"], 16) == 0
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Seccomp"].strip() == "2"


async def test_limits_are_the_type_s_own_once_it_runs(box):
    await box.text("true")
    await box.manager.settled("warm")
    host = (await box.inspect())["HostConfig"]
    assert host["NanoCpus"] == 10**9
    assert host["Memory"] == host["MemorySwap"] == 6 * 1024**3
    assert host["PidsLimit"] == 1024
    inside = await box.text(
        "cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null;"
        "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null;"
        "ulimit -Hn; ulimit -Hc"
    )
    assert inside.split() == ["1024", str(6 * 1024**3), "16384", "0"]


async def test_no_mounts_of_the_host_and_no_engine(box):
    found = await box.inspect()
    assert found["Mounts"] == []
    assert found["HostConfig"]["Binds"] in (None, [])
    assert found["HostConfig"]["Privileged"] is False
    assert await box.text("ls /var/run/docker.sock /run/docker.sock 2>/dev/null || true") == ""
    assert found["HostConfig"]["LogConfig"]["Type"] == "none"


@pytest.mark.parametrize(
    "attempt",
    [
        "mount -t tmpfs none /mnt",
        "mknod /tmp/disk b 8 0",
        "chroot / true",
        "hostname other",
        "echo 1 > /proc/sys/kernel/panic",
        "unshare -m true",
        "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
    ],
)
async def test_what_root_may_not_do(box, attempt):
    result, _ = await box.run(attempt)
    assert result.reason == "command_failed"


async def test_sandboxes_do_not_reach_each_other(box):
    server = Box(box.manager, SandboxSpec("server", instance_type="standard-2"))
    process, sink = await server.begin(
        "hostname -I; python3 -c \"import socket; s=socket.create_server(('', 8000)); "
        "print('listening', flush=True); s.accept()\""
    )
    await sink.until(b"listening")
    address = sink.stdout.split()[0].decode()
    connect = f"timeout 2 bash -c ': > /dev/tcp/{address}/8000'"
    assert (await server.run(connect))[0].ok
    assert not (await box.run(connect))[0].ok
    await process.wait()


async def test_without_a_network(box):
    lonely = Box(box.manager, SandboxSpec("lonely", instance_type="standard-2", network="none"))
    assert await lonely.text("ls /sys/class/net") == "lo\n"


async def test_the_strict_profile():
    houses = Houses()
    try:
        manager = await houses.manager()
        box = Box(manager, SandboxSpec("tight", profile="strict", instance_type="standard-2"))
        text = await box.text("id -u; grep CapBnd /proc/self/status; touch mine; echo $HOME")
        assert text.split() == ["1000", "CapBnd:", "0000000000000000", "/workspace"]
        assert not (await box.run("touch /etc/x"))[0].ok
        assert (await box.run("touch /tmp/x && git init -q repo"))[0].ok
        result, _ = await box.run("setsid sleep 7200000 & wait", timeout_ms=300)
        assert result.reason == "timeout"
        assert await box.text("pgrep -c -f 7200000 || true") == "1\n"
        await manager.kill("tight")
        assert await box.text("ls") == "mine\nrepo\n"
        await manager.destroy("tight")
        assert await box.text("ls") == ""
    finally:
        await houses.clean_up()


async def test_a_fork_bomb_stays_in_its_sandbox(box):
    bomb = Box(box.manager, SandboxSpec("bomb", instance_type="lite"))
    process, _ = await bomb.begin("f() { f | f & }; f; sleep 60", timeout_ms=2000)
    for _ in range(5):
        assert await box.text("echo fine") == "fine\n"
    result = await asyncio.wait_for(process.wait(), 25)
    assert result.reason in ("timeout", "sandbox_terminated", "command_failed")
    assert await bomb.text("echo works") == "works\n"
