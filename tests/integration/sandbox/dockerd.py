"""A container engine of the tests' own, which they may stop, kill and freeze.

It shares nothing with the machine's: socket, data, containerd and network are apart.
"""

import asyncio
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

UP_S, DOWN_S = 30.0, 15.0
CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{folder}/containerd.sock"
"""


class Dockerd:
    def __init__(self, folder):
        self.folder = folder
        self.host = f"unix://{folder}/engine.sock"
        self._process = self._containerd = None

    async def open(self):
        """Its containerd, which lives through all that happens to the engine."""
        config = self.folder / "containerd.toml"
        config.write_text(CONTAINERD.format(folder=self.folder))
        # A network namespace of its own: an engine without a bridge removes the host's docker0.
        # The process is in it only once `unshare` has run, which its first line tells.
        told = 'echo && exec containerd --config "$0" >&2'
        unshared = ("unshare", "--net", "sh", "-c", told, config)
        self._containerd = await self._run(*unshared, stdout=subprocess.PIPE)
        async with asyncio.timeout(UP_S):
            assert await self._containerd.stdout.readline(), (self.folder / "log").read_text()

    async def _run(self, *argv, stdout=None):
        with (self.folder / "log").open("ab") as log:
            return await asyncio.create_subprocess_exec(*argv, stdout=stdout or log, stderr=log)

    async def start(self, *, live_restore, driver=None):
        """Returns once it answers. `driver` is where it keeps containers, else what it takes."""
        network = f"--net=/proc/{self._containerd.pid}/ns/net"
        self._process = await self._run(
            "nsenter", network, "dockerd", "--host", self.host, "--data-root", self.folder / "data",
            "--exec-root", self.folder / "exec", "--pidfile", self.folder / "pid",
            "--containerd", self.folder / "containerd.sock", "--bridge", "none",
            "--iptables=false", "--ip-forward=false", "--ip-masq=false",
            *(["--live-restore"] if live_restore else []),
            *(["--storage-driver", driver] if driver else []),
        )  # fmt: skip
        async with asyncio.timeout(UP_S):
            while not await self._answers():
                assert self._process.returncode is None, (self.folder / "log").read_text()[-2000:]
                await asyncio.sleep(0.05)  # it has no other way of telling

    async def _answers(self):
        try:
            reader, writer = await asyncio.open_unix_connection(self.folder / "engine.sock")
        except OSError:
            return False
        writer.write(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
        with suppress(OSError):
            line = await reader.readline()
            writer.close()
            return b" 200 " in line
        return False

    def send(self, number):
        self._process.send_signal(number)

    async def down(self, number=signal.SIGTERM):
        """End it as `number` does; returns once it is gone."""
        if self._process is not None and self._process.returncode is None:
            self.send(number)
            async with asyncio.timeout(DOWN_S):
                await self._process.wait()

    async def load(self, image):
        save = f"docker save {image} | docker -H {self.host} load"
        process = await asyncio.create_subprocess_shell(save, stdout=subprocess.DEVNULL)
        assert await process.wait() == 0

    async def clean_up(self):
        """Leave no process, mount or file."""
        if self._process.returncode is None:
            self.send(signal.SIGCONT)
        else:
            await self.start(live_restore=False)  # it ends what an earlier life left
        names = f"docker -H {self.host} ps -aq | xargs -r docker -H {self.host} rm -f"
        process = await asyncio.create_subprocess_shell(names, stdout=subprocess.DEVNULL)
        await process.wait()
        await self.down()
        self._containerd.terminate()
        await asyncio.wait_for(self._containerd.wait(), DOWN_S)
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        for path in sorted((line.split()[1] for line in mounts), reverse=True):
            if path.startswith(f"{self.folder}/"):
                process = await asyncio.create_subprocess_exec("umount", path)
                await process.wait()
        shutil.rmtree(self.folder)
