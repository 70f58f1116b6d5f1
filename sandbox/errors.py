"""What can go wrong with sandboxes, each class with the code that PROTOCOL.md gives it.

SandboxError
├── InvalidSpec          what was asked for cannot be (bad id, unknown image, ...)
├── UnknownSandbox       no sandbox of that id
├── SandboxUnavailable   no running sandbox to be had now; the message says what to do
│   ├── EngineUnavailable    no container engine answers
│   ├── ImageMissing         the image is not built
│   ├── StartupFailed        its startup command did not exit 0 in time
│   └── SandboxLimit         as many sandboxes run as the settings allow
├── ImageBuildFailed     an image could not be built; the message has the end of its output
├── EngineError          the engine refused; carries its HTTP status
├── LinkBroken           the runner's wire closed or said what a runner does not say
└── Detached             the manager was closed while the command went on
"""

from typing import ClassVar


class SandboxError(Exception):
    """Base of them all; `message` is written for people."""

    code: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidSpec(SandboxError):
    """`field` names what is wrong, in snake_case."""

    code = "invalid"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class UnknownSandbox(SandboxError):
    code = "unknown_sandbox"


class SandboxUnavailable(SandboxError):
    code = "sandbox_unavailable"
    retryable = True


class EngineUnavailable(SandboxUnavailable):
    pass


class ImageMissing(SandboxUnavailable):
    pass


class StartupFailed(SandboxUnavailable):
    pass


class SandboxLimit(SandboxUnavailable):
    pass


class ImageBuildFailed(SandboxError):
    code = "unavailable"


class EngineError(SandboxError):
    """`status` is the engine's HTTP status; 404 and 409 mean something to callers."""

    code = "sandbox_unavailable"
    retryable = True

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class LinkBroken(SandboxError):
    code = "sandbox_terminated"
    retryable = True


class Detached(SandboxError):
    """Not an end: whoever opens a manager of the same owner may adopt the command."""

    code = "unavailable"
    retryable = True
