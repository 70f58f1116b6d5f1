"""Commands as the HTTP API lists them: those that run, recent ones, and what they left running."""

from typing import Any

from protocol import names
from server.hub import Hub
from server.sandboxes import Sandboxes


async def of_room(hub: Hub, room_id: str) -> dict[str, Any]:
    """`{execs, children}` of a room. Raises UnknownRoom, Unavailable."""
    execs = await _recent(hub, room_id)
    return {"execs": execs, "children": await hub.execs.children(room_id)}


async def of_sandbox(sandboxes: Sandboxes, raw: str) -> dict[str, Any]:
    """The same of a sandbox without a room: those that run. Raises UnknownSandbox, Invalid."""
    name = sandboxes.without_room(raw).id
    return {
        "execs": sandboxes.solo.running(name),
        "children": await sandboxes.solo.children(name),
    }


async def _recent(hub: Hub, room_id: str) -> list[dict[str, Any]]:
    """Running execs and those that ended within the newest page of the log, oldest first."""
    page = await hub.page(room_id, before=None, after=None, limit=names.HISTORY_PAGE_MAX)
    found: dict[str, dict[str, Any]] = {
        exec_id: {"started": running.started.event(), "running": True}
        for exec_id, running in (await hub.roomlog.running(room_id)).items()
    }
    for event in page["events"]:
        if event["type"] == "exec.started":
            found.setdefault(event["exec"], {"running": False})["started"] = event
        elif event["type"] == "exec.exited":
            found.setdefault(event["exec"], {})["exited"] = event
            found[event["exec"]]["running"] = False
    return [{"exec": exec_id, **facts} for exec_id, facts in found.items()]
