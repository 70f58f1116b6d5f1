"""Settings: `DUET_*` from the environment and `.env`, each with its default and its reason.

The README's table is held to this class by a test.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

KIB = 1024
MIB = 1024 * 1024


class Settings(BaseSettings):
    """Everything a host can set; sizes in bytes, durations in the unit of the name."""

    model_config = SettingsConfigDict(
        env_prefix="DUET_", env_file=".env", extra="ignore", validate_default=True
    )

    host: str = Field("127.0.0.1", description="Address to listen on; loopback unless told.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    data_dir: Path = Field(Path("data"), description="Folder of the server's own data.")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Host names besides loopback that requests may name, comma-separated."
    )
    redis_url: str | None = Field(
        None, description="Redis or Valkey for history; unset, the server starts its own."
    )
    docker_host: str | None = Field(
        None, description="Address of the container engine; unset, Docker's own default."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least important line that is logged."
    )
    log_format: Literal["console", "json"] = Field(
        "console", description="Form of the log: for people or for machines."
    )
    history_events: int = Field(
        10_000, ge=100, description="Events a room keeps; older ones are trimmed."
    )
    room_image: str = Field("workspace", description="Image of a room's own sandbox.")
    room_instance_type: str = Field(
        "standard-2", description="Instance type of a room's own sandbox."
    )
    sandbox_network: Literal["bridge", "none"] = Field(
        "bridge", description="Network of sandboxes: their own bridge, or none."
    )
    sandbox_profile: Literal["default", "strict"] = Field(
        "default", description="How sandboxes are held: as root of a container, or as nobody in it."
    )
    sandbox_runtime: str | None = Field(
        None, description="OCI runtime of sandboxes, such as runsc; unset, the engine's default."
    )
    room_sleep_after: str = Field(
        "10m", description="Idle time after which a room's sandbox is saved and stopped."
    )
    sandbox_pool: int = Field(
        1, ge=0, le=16, description="Containers per image that wait ready for new rooms."
    )
    sandbox_disk_bytes: int | None = Field(
        10 * 1024 * MIB, ge=MIB, description="The most that a sandbox may write to its disk."
    )
    saved_max_age_s: float | None = Field(
        30 * 24 * 3600.0, gt=0, description="Age at which a saved workspace is removed."
    )
    saved_max_bytes: int | None = Field(
        50 * 1024 * MIB, ge=MIB, description="Size of all saved workspaces; the oldest go first."
    )
    max_sandboxes: int = Field(200, ge=1, description="Sandboxes that may run at once.")
    max_running_execs: int = Field(
        128, ge=1, description="Commands that may run at once in a room."
    )
    exec_timeout_ms: int = Field(
        600_000, ge=1, description="Life of a command that asks for no other."
    )
    exec_output_limit_bytes: int = Field(
        256 * MIB, ge=1, description="What a command may print before it is ended."
    )
    exec_head_bytes: int = Field(
        256 * KIB, ge=0, description="Kept of the start of each of a command's streams."
    )
    exec_tail_bytes: int = Field(
        768 * KIB, ge=4 * KIB, description="Kept of the end of each of a command's streams."
    )
    exec_kept_s: int = Field(86_400, ge=60, description="How long a command's output is kept.")
    exec_live_burst_bytes: int = Field(
        4 * MIB, ge=0, description="Live output of a command that is sent at once."
    )
    exec_live_bytes_per_s: int = Field(
        1 * MIB, ge=1, description="Live output of a command per second after the burst."
    )
    frames_per_second: int = Field(
        2_000, ge=1, description="Frames a session may send per second, with one second's burst."
    )
    outbox_drop_bytes: int = Field(
        1 * MIB, ge=1, description="Waiting bytes from which a session loses live output."
    )
    outbox_close_bytes: int = Field(
        8 * MIB, ge=1, description="Waiting bytes from which a session is closed as too slow."
    )
    silent_s: float = Field(
        60.0, gt=0, description="A session that answers nothing for this long is closed."
    )
    drain_s: float = Field(
        8.0, gt=0, le=9.0, description="Most that a graceful stop may take before it is cut short."
    )

    agent_model: str | None = Field(
        None, description="The agent's model, such as openai:NAME, anthropic:NAME or local."
    )
    agent_base_url: str | None = Field(
        None, description="Address of a server that speaks the provider's API; unset, its own."
    )
    agent_api_key: SecretStr | None = Field(None, description="The provider's key.")
    agent_tools: Literal["auto", "native", "tags"] = Field(
        "auto", description="How the model wants commands: tool calls, or `<run>` in its text."
    )
    agent_name: str = Field(
        "duet", pattern=r"^[\w-]{1,64}$", description="The agent's name, for @name too."
    )
    agent_approval: Literal["auto", "ask", "off"] = Field(
        "auto", description="Whether its commands run at once, after a yes, or never; per room."
    )
    agent_approval_s: float = Field(
        120.0, gt=0, le=86_400, description="How long a yes is waited for; then it is a no."
    )
    agent_always_ask: Annotated[tuple[str, ...], NoDecode] = Field(
        (r"\bgit\s+push\b", r"\b(npm|yarn|pnpm)\s+publish\b", r"\btwine\s+upload\b"),
        description="Regular expressions, separated by `;`: such commands need a yes on auto too.",
    )
    agent_max_steps: int = Field(20, ge=1, description="Answers of the model in one turn.")
    agent_max_tokens: int = Field(
        200_000, ge=100, description="Tokens of one turn, to the model and from it."
    )
    agent_max_seconds: float = Field(
        300.0, gt=0, description="Life of one turn, without the time people take to decide."
    )
    agent_max_commands: int = Field(20, ge=1, description="Commands in one turn.")
    agent_context_tokens: int = Field(
        8_000, ge=500, description="Tokens of the room's history that the model is given."
    )

    @field_validator("agent_always_ask", mode="before")
    @classmethod
    def _split_patterns(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(";") if part.strip())
        return value

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip().lower() for part in value.split(",") if part.strip())
        return value

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()
