"""Saved workspaces: as they were, measured in blocks, limited, and the truth told of them."""

import asyncio
import json

import pytest

from sandbox.disk import usage
from sandbox.errors import EngineError, SandboxError
from sandbox.manager import Manager, ManagerConfig
from sandbox.spec import MIB, SandboxSpec
from tests.integration.sandbox.houses import Box

WAIT_S = 30.0


class Clock:
    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def make(houses, clock, tmp_path):
    async def manager(**fields):
        config = ManagerConfig(owner=houses.owner, state_dir=tmp_path / "state", **fields)
        made = Manager(config, on_change=houses.changes.append, clock=clock)
        await made.open()
        houses.managers.append(made)
        return made

    return manager


def spec(name="one", **fields):
    return SandboxSpec(name, **{"instance_type": "standard-2", **fields})


async def removed_what_must_go(manager):
    """A round, and the end of one of the manager's own that was under way."""
    await manager.tick()
    async with asyncio.timeout(WAIT_S), manager._upkeep._removing:
        pass


async def measured(manager, name="one"):
    await manager._watch.look(manager._known(name))
    return next(one for one in manager.saved() if one.id == name)


BEFORE = """
set -e
head -c 2G /dev/urandom > big
truncate -s 3G sparse; echo end >> sparse
echo secret > closed; chmod 000 closed
mkdir shut; echo in > shut/in; chmod 000 shut
echo theirs > foreign; chown 12345:23456 foreign; chmod 4711 foreign
ln -s foreign link; ln -s /nowhere dangling; ln foreign hard
ln -s /etc etc
mkfifo pipe
git init -q repo; cd repo; git config user.email a@b; git config user.name a
echo 1 > a; git add a; git commit -qm one; git branch side; echo 2 >> a
sync
"""
LOOK = """
cksum big && stat -c '%n %F %a %u:%g %s %b %h' big sparse closed shut shut/in foreign link dangling hard etc pipe
readlink link dangling etc; tail -c 4 sparse; cat shut/in closed
git -C repo status --porcelain=v2 --branch; git -C repo log --format=%s --all; du -k --apparent-size sparse | cut -f1
"""


async def test_a_workspace_is_found_as_it_was_cycle_after_cycle(make):
    manager = await make()
    box = Box(manager, spec())
    await box.text(BEFORE)
    seen = await box.text(LOOK)
    for _ in range(3):
        await manager.kill("one")
        assert manager.get("one").workspace_saved
        assert await box.text(LOOK) == seen
    await manager.kill("one")
    size = (await measured(manager)).size_bytes
    assert 2048 * MIB < size < 2078 * MIB  # and none of the 3 GiB of holes
    assert (await measured(manager)).exact


async def test_installed_packages_stay(make):
    manager = await make()
    box = Box(manager, spec())
    await box.text(
        "mkdir -p p/src/tiny/DEBIAN p/src/tiny/usr/bin && cd p/src"
        " && printf 'Package: tiny\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b>\\n"
        "Description: t\\n' > tiny/DEBIAN/control && printf '#!/bin/sh\\necho tiny works\\n'"
        " > tiny/usr/bin/tiny && chmod 755 tiny/usr/bin/tiny && dpkg-deb -b tiny > /dev/null"
        " && apt-get install -y ./tiny.deb > /dev/null 2>&1"
    )
    await box.text(
        "mkdir w && cd w && printf 'from setuptools import setup\\n"
        'setup(name="small", version="1", py_modules=["small"])\\n\' > setup.py'
        " && echo 'print(\"small works\")' > small.py && pip install --no-build-isolation -q . 2>&1"
    )
    await manager.kill("one")
    assert await box.text("tiny; cd /; python3 -m small; dpkg -s tiny | grep Status") == (
        "tiny works\nsmall works\nStatus: install ok installed\n"
    )


async def test_links_out_of_the_workspace_save_and_touch_nothing_outside(make):
    manager = await make()
    box = Box(manager, spec())
    await box.text("ln -s /etc /workspace/x; ln -s / /workspace/root")
    await manager.kill("one")
    assert (await measured(manager)).size_bytes < 2 * MIB
    assert await box.text("readlink x root") == "/etc\n/\n"


@pytest.mark.parametrize("target", ["/etc", "/nowhere", "/proc/self/fd/7"])
async def test_the_workspace_itself_replaced_by_a_link(make, target):
    manager = await make()
    box = Box(manager, spec())
    await box.text(f"cd / && rm -rf /workspace && ln -s {target} /workspace")
    await manager.kill("one")
    assert manager.get("one").workspace_saved
    assert (await measured(manager)).size_bytes < 2 * MIB
    _, sink = await box.run("readlink /workspace; true", cwd="/")
    assert sink.stdout.decode() == f"{target}\n"
    await manager.destroy("one")
    assert await box.text("ls -A /workspace") == ""


@pytest.mark.parametrize(
    "cwd", ["/proc/self/fd/7", "/proc/1/root", "/proc/1/cwd", "../../..", "x\n"]
)
async def test_a_folder_to_run_in_that_leads_elsewhere(make, cwd):
    manager = await make()
    result, sink = await Box(manager, spec()).run("pwd -P; cat /etc/hostname", cwd=cwd)
    assert not result.ok or sink.stdout.endswith(b"sandbox\n")


async def test_a_workspace_that_could_not_be_saved_is_told_and_kept(make, monkeypatch):
    manager = await make()
    box = Box(manager, spec())
    await box.text("echo mine > file")

    async def refuse(container, grace_s):
        raise EngineError(500, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(manager.engine, "stop", refuse)
        with pytest.raises(SandboxError):
            await manager.kill("one")
    record = manager.get("one")
    assert (record.status, record.workspace_saved) == ("error", False)
    assert "no space left" in record.last_error
    assert manager.saved() == []
    assert await box.inspect() is not None
    assert (await manager.kill("one")).workspace_saved
    assert await box.text("cat file") == "mine\n"


async def test_a_container_removed_from_outside_is_not_called_saved(houses, make, clock):
    manager = await make()
    box = Box(manager, spec())
    await box.text("true")
    await manager.kill("one")
    assert manager.get("one").workspace_saved
    await box.docker("rm")
    clock.now += 60
    await manager.tick()
    record = manager.get("one")
    assert (record.status, record.workspace_saved) == ("stopped", False)
    assert "removed from outside" in record.last_error
    assert houses.changes[-1] == record
    await manager.reconcile()
    assert houses.changes[-1] == record


async def test_one_started_from_outside_is_stopped_again(make):
    manager = await make()
    box = Box(manager, spec())
    await box.text("echo mine > file")
    await manager.kill("one")
    await box.docker("start")
    await manager.reconcile()
    assert (await box.inspect())["State"]["Running"] is False
    assert manager.get("one").workspace_saved
    assert await box.text("cat file") == "mine\n"


async def test_containers_that_are_not_ours_are_left_alone(houses, make):
    manager = await make()
    engine = manager.engine
    name = f"duet-{houses.owner}-stray"
    config = {
        "Image": "duet/workspace:1",
        "Cmd": ["sleep", "60"],
        "HostConfig": {"NetworkMode": "none"},
        "Labels": {"duet.test": houses.owner},
    }
    stranger = await engine.create(name, config)
    try:
        await engine.start(stranger)
        await manager.reconcile()
        assert (await engine.inspect(stranger))["State"]["Running"]
        with pytest.raises(SandboxError) as caught:
            await Box(manager, spec("stray")).run("true")
        assert "not Duet's" in caught.value.message
        assert (await engine.inspect(stranger))["State"]["Running"]
    finally:
        await engine.remove(stranger)


async def test_a_removal_that_was_begun_is_finished_by_a_later_server(houses, make, monkeypatch):
    manager = await make()
    box = Box(manager, spec(profile="strict"))
    await box.text("echo secret > file")
    await manager.kill("one")

    async def refuse(*words):
        raise EngineError(500, "busy")

    monkeypatch.setattr(manager.engine, "remove_with_volumes", refuse)
    with pytest.raises(SandboxError):
        await manager.destroy("one")
    assert manager.get("one").status == "error"
    later = await make()
    assert later.list() == []
    assert await box.inspect() is None
    filters = json.dumps({"label": [f"duet.owner={houses.owner}"]})
    volumes = await later.engine.call("GET", "volumes", params={"filters": filters})
    assert not volumes["Volumes"]


async def test_one_beyond_its_age_goes_and_says_so(houses, make, clock, caplog):
    manager = await make(saved_max_age_s=3600)
    for name in ("old", "new"):
        await Box(manager, spec(name)).text("true")
        await manager.kill(name)
        clock.now += 3000
    await removed_what_must_go(manager)
    assert [record.id for record in manager.list()] == ["new"]
    last = next(change for change in reversed(houses.changes) if change.id == "old")
    assert (last.status, last.workspace_saved) == ("stopped", False)
    assert "kept for 3600 seconds" in last.last_error
    assert "old" in caplog.text
    assert len(await manager.engine.list(f"duet.owner={houses.owner}")) == 1


async def test_the_oldest_go_when_all_take_too_much(houses, make, clock):
    manager = await make(saved_max_bytes=50 * MIB)
    for name in ("first", "second", "third"):
        await Box(manager, spec(name)).text("head -c 20M /dev/urandom > data")
        await manager.kill(name)
        await measured(manager, name)
        clock.now += 60
    running = Box(manager, spec("running"))
    await running.text("head -c 60M /dev/urandom > data")
    await removed_what_must_go(manager)
    assert [record.id for record in manager.list()] == ["second", "third", "running"]
    assert [one.id for one in manager.saved()] == ["second", "third"]


async def test_sizes_survive_the_server_and_are_measured_by_themselves(make):
    manager = await make()
    await Box(manager, spec()).text("head -c 5M /dev/urandom > data")
    await manager.kill("one")
    async with asyncio.timeout(WAIT_S):
        while manager.saved()[0].size_bytes is None:  # noqa: ASYNC110  (the watch has no event)
            await asyncio.sleep(0.05)
    await manager.tick()
    later = await make()
    assert later.saved() == manager.saved()
    assert later.saved()[0].size_bytes >= 5 * MIB


async def test_where_the_layer_cannot_be_read_the_engine_counts(make, monkeypatch):
    manager = await make()
    box = Box(manager, spec())
    await box.text("head -c 5M /dev/urandom > data; truncate -s 1G hole")
    await manager.kill("one")
    monkeypatch.setattr("sandbox.disk.os.access", lambda *_: False)
    used = await usage(manager.engine, (await box.inspect())["Id"])
    assert used.exact is False
    assert used.size_bytes > 1024 * MIB
