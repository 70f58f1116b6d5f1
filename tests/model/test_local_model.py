"""The agent end to end with a real model behind a real model server: `duet serve --agent local`.

What so small a model says is not judged, only that it is said, word by word, and that what it
wants runs.
"""

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.server.harness import DUET, JSON, SANDBOX_S, Server, remove_containers

ANSWER_S = 120.0
"""It takes a second; a machine that does other things as well may take long."""


class LocalServer(Server):
    """`duet serve --agent local`."""

    def __init__(self, data_dir):
        data_dir.mkdir(parents=True)
        self.data_dir = data_dir
        self.log_path = data_dir.with_suffix(".log")
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*DUET, "serve", "--port", "0", "--data-dir", data_dir, "--agent", "local"],
                cwd=data_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.port = 0

    def model_pid(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in children.read_text().split():
            if b"server.agent.local" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        raise AssertionError("no model runs")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = LocalServer(tmp_path_factory.mktemp("duet") / "data").wait_ready()
    try:
        yield server
        assert "Traceback" not in server.log(), server.log()
    finally:
        server.stop()
        remove_containers(server)


async def asked(client, room, text):
    turn = (await client.ok("ask", room=room, text=text))["turn"]
    return await client.until(
        lambda f: f["type"] == "agent.finished" and f["turn"] == turn, limit_s=ANSWER_S
    )


async def test_it_answers_word_by_word(server):
    async with server.client(JSON, "Alice") as alice:
        room = await server.new_room()
        joined = await alice.join(room)
        assert [p["kind"] for p in joined["participants"]] == ["agent", "human"]
        end = await asked(alice, room, "What is the capital of France?")
        assert end["status"] == "done", end
        assert end["usage"]["outputTokens"] > 0
        message = alice.of("message")[0]
        assert message["text"].strip()
        assert message["text"] == "".join(d["text"] for d in alice.of("agent.delta"))


async def test_what_it_wants_runs_in_the_rooms_sandbox(server):
    async with server.client(JSON, "Alice") as alice:
        room = await server.new_room()
        await alice.join(room)
        end = await asked(alice, room, "list the files")
        assert end["status"] in ("done", "limit", "failed")
        started = await alice.until("exec.started", limit_s=SANDBOX_S)
        assert started["by"]["kind"] == "agent"
        assert (started["command"].strip(), started["turn"]) == (started["command"], end["turn"])
        exited = await alice.exited(started["exec"])
        assert exited["ok"] or exited["reason"] == "command_failed"


async def test_over_http_it_replies(server):
    room = await server.new_room()
    status, answer = await server.http("POST", f"/api/rooms/{room}/message", {"text": "hello!"})
    assert status == 200
    assert answer["reply"].strip()
    assert [m["role"] for m in answer["messages"]] == ["user", "agent"]


def test_the_model_ends_with_its_server_however_that_ends(tmp_path):
    server = LocalServer(tmp_path / "data").wait_ready()
    model = server.model_pid()
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(10)
    deadline = time.monotonic() + 10
    while alive(model) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(model)


def alive(pid):
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    return re.search(r"^State:\s+Z", text, re.MULTILINE) is None
