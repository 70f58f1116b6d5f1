"""More of what isolates sandboxes: read from inside, and from the engine, for each profile."""

import asyncio

import pytest

from sandbox import containers
from sandbox.engine import EngineInfo
from sandbox.errors import InvalidSpec, SandboxUnavailable
from sandbox.spec import INSTANCE_TYPES, SandboxSpec
from tests.integration.sandbox.houses import Box

SIZES = "df -B1 --output=target,size /dev/shm /tmp | tail -n +2"


def sizes_of(text):
    return {line.split()[0]: int(line.split()[1]) for line in text.splitlines()}


@pytest.mark.parametrize("profile", ["default", "strict"])
async def test_memory_file_systems_stay_within_a_quarter_when_the_type_changes(manager, profile):
    box = Box(manager, SandboxSpec("one", instance_type="standard-2", profile=profile))
    await box.text("echo kept > file")
    await manager.kill("one")
    await manager.start(SandboxSpec("one", instance_type="lite", profile=profile))
    sizes = sizes_of(await box.text(SIZES))
    memory = INSTANCE_TYPES["lite"].memory_bytes
    in_memory = ["/dev/shm", "/tmp"] if profile == "strict" else ["/dev/shm"]
    assert sum(sizes[name] for name in in_memory) <= memory // 4
    assert await box.text("cat file") == "kept\n"
    await manager.settled("one")
    host = (await box.inspect())["HostConfig"]
    assert (host["Memory"], host["MemorySwap"]) == (memory, memory)


async def test_the_strict_profile_s_volume_is_ours_and_goes_with_it(houses, manager):
    box = Box(manager, SandboxSpec("one", profile="strict", instance_type="standard-2"))
    await box.text("echo kept > file")
    name = containers.container_name(houses.owner, "one")
    assert (await manager.engine.volume(name))["Labels"] == {
        "duet.owner": houses.owner,
        "duet.sandbox": "one",
    }
    await manager.kill("one")
    await box.docker("rm")  # its files outlive the container
    await manager.reconcile()
    assert manager.get("one").workspace_saved
    assert await box.text("cat file") == "kept\n"
    await manager.destroy("one")
    assert await manager.engine.volume(name) is None


@pytest.mark.parametrize("profile", ["default", "strict"])
async def test_of_one_removed_while_it_ran_only_a_volume_is_saved(manager, profile):
    box = Box(manager, SandboxSpec("one", profile=profile, instance_type="standard-2"))
    process, sink = await box.begin("echo mine > file; echo up; sleep 100")
    await sink.until(b"up")
    await box.docker("rm", "-f")
    assert (await asyncio.wait_for(process.wait(), 5)).reason == "sandbox_terminated"
    record = manager.get("one")
    assert (record.status, record.workspace_saved) == ("stopped", profile == "strict")
    await manager.reconcile()
    assert manager.get("one").workspace_saved is (profile == "strict")
    assert await box.text("ls") == ("file\n" if profile == "strict" else "")


async def test_the_network_of_sandboxes_keeps_them_apart(manager):
    box = Box(manager, SandboxSpec("one", instance_type="standard-2"))
    await box.text("true")
    network = await manager.engine.call("GET", f"networks/{containers.NETWORK}")
    assert network["Driver"] == "bridge"
    assert network["Options"]["com.docker.network.bridge.enable_icc"] == "false"
    assert list((await box.inspect())["NetworkSettings"]["Networks"]) == [containers.NETWORK]


async def test_limits_on_files_and_processes_hold_from_inside(manager):
    box = Box(manager, SandboxSpec("one", instance_type="standard-2"))
    assert (await box.text("ulimit -Sn; ulimit -Hn; ulimit -c")).split() == ["1024", "16384", "0"]
    result, _ = await box.run("ulimit -Hn 20000")
    assert result.reason == "command_failed"
    found = await box.inspect()
    assert found["HostConfig"]["IpcMode"] == "private"
    assert found["HostConfig"]["SecurityOpt"] == ["no-new-privileges"]  # and so default seccomp
    assert found["Config"]["WorkingDir"] == "/"
    assert not [word for word in found["Config"]["Env"] if "DUET" in word]


async def test_a_runtime_that_went_away_is_not_replaced_by_another(manager, monkeypatch):
    box = Box(manager, SandboxSpec("one", runtime="runc", instance_type="standard-2"))
    await box.text("true")
    assert (await box.inspect())["HostConfig"]["Runtime"] == "runc"
    await manager.kill("one")

    async def info(*, fresh=False):
        return EngineInfo("20.10", 2, 10**10, ("crun",), live_restore=False, runc="")

    monkeypatch.setattr(manager.engine, "info", info)
    with pytest.raises(SandboxUnavailable) as caught:
        await box.run("true")
    assert "no runtime runc; it has crun" in caught.value.message
    assert (manager.get("one").status, manager.get("one").workspace_saved) == ("error", True)


@pytest.mark.parametrize(
    "raw",
    ["../up", "a/b", "a;reboot", "$(id)", "a b", "a\nb", "-rf", "a.spare-1", "\u0661", "x" * 81],
)
async def test_ids_cannot_lead_out(manager, tmp_path, raw):
    assert manager.get(raw) is None
    for move in (manager.kill, manager.destroy, manager.ready):
        with pytest.raises(InvalidSpec):
            await move(raw)
    with pytest.raises(InvalidSpec):
        SandboxSpec(raw)
    with pytest.raises(InvalidSpec), manager.hold(raw, "turn"):
        pass


async def test_the_longest_id_works(manager):
    box = Box(manager, SandboxSpec("x" * 80, instance_type="standard-2", profile="strict"))
    assert await box.text("echo fine") == "fine\n"
    await asyncio.gather(manager.destroy("X" * 80), manager.destroy(" " + "x" * 80))
    assert manager.list() == []
