"""What a sandbox's container looks like, as the engine's JSON. Pure: no engine is asked here.

The hardening of DESIGN.md decision 11 stands in this one file, so that it can be read at once.
"""

from collections.abc import Mapping
from typing import Any, Final

from sandbox.spec import (
    INSTANCE_TYPES,
    MIB,
    WORKDIR,
    InstanceType,
    SandboxSpec,
    sandbox_id,
)

IMAGE_VERSION: Final = "1"
NETWORK: Final = "duet-sandboxes"
NETWORK_OPTIONS: Final = {"com.docker.network.bridge.enable_icc": "false"}
CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL")  # apt needs
PIDS: Final = 1024
NOFILE_SOFT: Final = 1024
NOFILE_HARD: Final = 16_384  # within what common engines may hand on (20,000 and up)
STRICT_USER: Final = "1000:1000"
# Of /dev/shm: a quarter of the smallest type's memory, since it stays when the type changes; and
# what engines give by themselves.
SHM_BYTES: Final = 64 * MIB
# States of a container that somebody removes, and of one whose removal did not get to its end.
GOING: Final = ("removing", "dead")
# A start at 1/16 CPU takes most of a second; every start gets up to this until it is ready.
START_NANO_CPUS: Final = 2 * 10**9

OWNER_LABEL: Final = "duet.owner"
ID_LABEL: Final = "duet.sandbox"
SPARE_LABEL: Final = "duet.spare"
_SPEC_LABELS: Final = ("image", "instance_type", "network", "profile", "runtime")

# Reads the runner's length and source from stdin: no file in the sandbox, the server's version.
BOOT: Final = """\
import os
def take(n):
    b = b""
    while len(b) < n:
        c = os.read(0, n - len(b))
        if not c:
            raise SystemExit(1)
        b += c
    return b
exec(compile(take(int(take(8))), "runner", "exec"), {"__name__": "__main__"})
"""


def image_tag(image: str) -> str:
    return f"duet/{image}:{IMAGE_VERSION}"


def container_name(owner: str, sandbox: str) -> str:
    return f"duet-{owner}-{sandbox}"


def spare_name(owner: str, token: str) -> str:
    """A pool's container; no sandbox's name has a dot."""
    return f"duet-{owner}.spare-{token}"


def name_of(container: Mapping[str, Any]) -> str:
    """Of an entry of the engine's list."""
    return str((container.get("Names") or ["/"])[0]).removeprefix("/")


def is_spare(container: Mapping[str, Any], owner: str) -> bool:
    """Of the pool, and not yet anybody's: its label stays, its name does not."""
    spare = name_of(container).startswith(spare_name(owner, ""))
    return spare and SPARE_LABEL in container["Labels"]


def sandbox_of(container: Mapping[str, Any], owner: str) -> str:
    """Whose it is: by its label, or, since a spare's can't be changed, by the name it was given.

    Raises InvalidSpec for neither.
    """
    if ID_LABEL in container["Labels"]:
        return sandbox_id(container["Labels"][ID_LABEL])
    return sandbox_id(name_of(container).removeprefix(container_name(owner, "")))


def spec_of(container: Mapping[str, Any], owner: str) -> SandboxSpec:
    """The spec a container was made from, as far as it tells. Raises InvalidSpec."""
    found = {**container["Labels"], ID_LABEL: sandbox_of(container, owner)}
    return spec_from_labels(found)


def labels(owner: str, spec: SandboxSpec) -> dict[str, str]:
    found = {OWNER_LABEL: owner, ID_LABEL: spec.id}
    for name in _SPEC_LABELS:
        value = getattr(spec, name)
        if value is not None:
            found[f"duet.{name}"] = value
    return found


def spec_from_labels(found: Mapping[str, str]) -> SandboxSpec:
    """The spec a container was made from. Raises InvalidSpec, KeyError for labels not ours."""
    known: dict[str, Any] = {
        name: found[f"duet.{name}"] for name in _SPEC_LABELS if f"duet.{name}" in found
    }
    return SandboxSpec(id=found[ID_LABEL], **known)


def nano_cpus(kind: InstanceType, engine_cpus: int, *, starting: bool = False) -> int:
    """The CPU limit, never above what the engine has (it refuses that)."""
    wanted = max(kind.nano_cpus, START_NANO_CPUS) if starting else kind.nano_cpus
    return min(wanted, engine_cpus * 10**9)


def limits(spec: SandboxSpec, engine_cpus: int, *, starting: bool = False) -> dict[str, int]:
    """What `update` sets and `inspect` reads back."""
    kind = INSTANCE_TYPES[spec.instance_type]
    return {
        "NanoCpus": nano_cpus(kind, engine_cpus, starting=starting),
        "Memory": kind.memory_bytes,
        "MemorySwap": kind.memory_bytes,
    }


def spare_config(owner: str, spec: SandboxSpec, engine_cpus: int) -> dict[str, Any]:
    """The same for a container that is nobody's yet: labelled so, and without an id."""
    config = create_config(owner, spec, engine_cpus)
    found = {name: value for name, value in config["Labels"].items() if name != ID_LABEL}
    return {**config, "Labels": {**found, SPARE_LABEL: "1"}}


def create_config(owner: str, spec: SandboxSpec, engine_cpus: int) -> dict[str, Any]:
    """The body of `containers/create`, at the raised CPU limit of a start."""
    strict = spec.profile == "strict"
    return {
        "Image": image_tag(spec.image),
        "Hostname": "sandbox",
        "Entrypoint": ["/usr/bin/python3", "-I", "-S", "-c", BOOT],
        "Cmd": [],
        # Not the workspace: the engine makes and enters it from outside, and what is there is the
        # sandbox's own, perhaps a link to a descriptor that an old runc left open (CVE-2024-21626).
        "WorkingDir": "/",
        "User": STRICT_USER if strict else "0:0",
        "Env": [f"HOME={WORKDIR if strict else '/root'}", "LANG=C.UTF-8"],
        "Labels": labels(owner, spec),
        "OpenStdin": True,
        "StdinOnce": False,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "StopSignal": "SIGTERM",
        "HostConfig": _host_config(owner, spec, engine_cpus),
    }


def _host_config(owner: str, spec: SandboxSpec, engine_cpus: int) -> dict[str, Any]:
    strict = spec.profile == "strict"
    eighth = INSTANCE_TYPES[spec.instance_type].memory_bytes // 8
    shm = min(eighth, SHM_BYTES) if strict else SHM_BYTES
    config: dict[str, Any] = {
        **limits(spec, engine_cpus, starting=True),
        "CapDrop": ["ALL"],
        "CapAdd": [] if strict else list(CAPABILITIES),
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": PIDS,
        "Ulimits": [
            {"Name": "nofile", "Soft": NOFILE_SOFT, "Hard": NOFILE_HARD},
            {"Name": "core", "Soft": 0, "Hard": 0},
        ],
        "ShmSize": shm,
        "IpcMode": "private",
        "LogConfig": {"Type": "none"},
        "NetworkMode": "none" if spec.network == "none" else NETWORK,
        "ReadonlyRootfs": strict,
        "RestartPolicy": {"Name": "no"},
    }
    if strict:
        config["Tmpfs"] = {"/tmp": f"rw,nosuid,nodev,size={eighth}"}  # noqa: S108
        volume = {"Type": "volume", "Source": container_name(owner, spec.id), "Target": WORKDIR}
        volume["VolumeOptions"] = {"Labels": {OWNER_LABEL: owner, ID_LABEL: spec.id}}  # type: ignore[assignment]
        config["Mounts"] = [volume]
    if spec.runtime is not None:
        config["Runtime"] = spec.runtime
    return config
