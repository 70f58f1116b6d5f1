"""The runner's modules as one text that a bare interpreter can run: what is sent at each start."""

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "runner"
_MODULES: Final = (
    "loop",
    "wire",
    "system",
    "tree",
    "slots",
    "execs",
    "stdio",
    "inputs",
    "main",
)  # each imports only earlier ones

_LOADER: Final = """\
import sys, types
for name, text in {modules!r}:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
sys.modules["sandbox.runner.main"].main()
"""


def runner_source() -> bytes:
    """Python source that becomes the runner."""
    modules = [("sandbox", ""), ("sandbox.runner", "")]
    modules += [
        (f"sandbox.runner.{name}", (_FOLDER / f"{name}.py").read_text()) for name in _MODULES
    ]
    return _LOADER.format(modules=modules).encode()
