"""`duet doctor` on this machine, which has all that the tests need; and without its engine."""

import asyncio
import json
import os
import sys

DOCTOR = (sys.executable, "-m", "server.cli", "doctor", "--tests", "--json")
WAIT_S = 60.0
PARTS = ["Python", "Valkey", "Web page", "Engine", "runc", "Live restore", "Cgroups"]


async def examine(folder, **env):
    """Its exit code and what it says of each part."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("DUET_")}
    process = await asyncio.create_subprocess_exec(
        *DOCTOR, cwd=folder, env=mine | env, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(WAIT_S):
        out, _ = await process.communicate()
    told = json.loads(out)
    assert told["complete"] == (process.returncode == 0)
    return process.returncode, {check["part"]: check for check in told["checks"]}


async def test_it_looks_at_every_part(tmp_path) -> None:
    code, parts = await examine(tmp_path)
    assert code == 0
    assert list(parts) == [*PARTS, "Images", "Browser"]
    assert all(check["found"] for check in parts.values())
    assert not [check for check in parts.values() if check["status"] == "missing"]
    assert "Docker" in parts["Engine"]["found"]
    assert all(image in parts["Images"]["found"] for image in ("workspace", "debian"))
    assert list(tmp_path.iterdir()) == [], "it changed nothing"


async def test_it_says_what_is_missing_and_how_to_get_it(tmp_path) -> None:
    away = {"DUET_DOCKER_HOST": "unix:///nowhere/docker.sock", "DUET_REDIS_URL": "redis://[::1]:1"}
    code, parts = await examine(tmp_path, **away)
    assert code == 1
    missing = {name for name, check in parts.items() if check["status"] == "missing"}
    assert missing == {"Engine", "Images", "Redis"}
    assert all(parts[name]["advice"] for name in missing)
