"""Events as the hub and the execs append them."""

from server.roomlog import Append, new_id

ADA = {"id": "p_ada", "name": "Ada", "kind": "human"}
BEN = {"id": "p_ben", "name": "Ben", "kind": "human"}


def message(text, by=ADA, key=None, room="blue"):
    """A `say`, as the hub makes it."""
    made = new_id("m")
    body = {"type": "message", "room": room, "by": by, "id": made, "text": text}
    if key is not None:
        body["key"] = key
    return Append(body, key=key, answer=made, op="message", subject=made)


def change(op, subject, by=ADA, **fields):
    kind = {"edit": "edited", "delete": "deleted", "react": "reacted"}[op]
    body = {"type": f"message.{kind}", "room": "blue", "by": by, "id": subject, **fields}
    return Append(body, op=op, subject=subject, value="" if op == "react" else by["id"])


def started(exec_id, server="s1"):
    body = {"type": "exec.started", "room": "blue", "by": ADA, "exec": exec_id, "command": "ls"}
    value = f'{server} {{"type":"exec.started","exec":"{exec_id}"}}'
    return Append(body, answer=exec_id, op="start", subject=exec_id, value=value)


def exited(exec_id, **fields):
    body = {"type": "exec.exited", "room": "blue", "by": ADA, "exec": exec_id, "ok": True}
    return Append({**body, **fields}, content={}, answer=exec_id, op="exit", subject=exec_id)
