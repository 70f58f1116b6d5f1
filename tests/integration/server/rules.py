"""What the contract says of the frames of one session, held against each as it comes."""

import base64

from protocol import events

SERVER_FRAME_BYTES = 256 * 1024


def data_of(frame: dict) -> bytes:
    """The bytes of an exec.output frame."""
    if "base64" in frame:
        return base64.b64decode(frame["base64"], validate=True)
    return frame["data"] if isinstance(frame["data"], bytes) else frame["data"].encode()


class Rules:
    """What the contract says of the frames of one session, checked one by one."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self._offsets: dict[str, int] = {}
        self._known: dict[str, dict[str, int]] = {}
        self._over: set[str] = set()
        self._ts: dict[str, int] = {}

    def hold(self, frame: dict, size: int) -> None:
        self._say(size <= SERVER_FRAME_BYTES, "a frame over the limit", frame)
        try:
            kind = events.model_of(frame)
            if kind is None:
                raise ValueError("no such type")  # noqa: TRY301 - told as any other breach
            model = kind.model_validate(frame)
        except ValueError as error:
            self._say(False, f"not of the models: {error}", frame)
            return
        # `joined.sandbox` may also be null: there is none yet.
        frame = {k: v for k, v in frame.items() if k != "sandbox" or v is not None}
        self._say(model.wire() == frame, f"fields the models do not have: {model.wire()}", frame)
        if frame["type"] == "joined":
            self._joined(frame)
        elif "offset" in frame and "room" in frame:
            self._persisted(frame)
        if frame["type"] == "exec.started":
            self._known.setdefault(frame["exec"], {})
        elif frame["type"] == "exec.exited":
            self._exited(frame)
        if frame["type"] in ("exec.output", "exec.gap") and "ref" not in frame:
            self._output(frame)

    def _joined(self, frame: dict) -> None:
        room = frame["room"]
        self._ts.pop(room, None)
        listed = [event["offset"] for event in frame["events"]]
        dense = list(range(listed[0], listed[0] + len(listed))) if listed else []
        self._say(listed == dense, "a page with holes", listed)
        if frame["resumed"]:
            self._say(not frame["events"], "resumed and a page as well", frame)
            self._offsets.pop(room, None)
        else:
            self._offsets[room] = frame["offset"]
            self._say(not listed or listed[-1] == frame["offset"], "a page that ends early", frame)
        for running in frame["execs"]:
            starts = {name: span["from"] for name, span in running["streams"].items()}
            self._known[running["started"]["exec"]] = starts

    def _persisted(self, frame: dict) -> None:
        room, offset = frame["room"], frame["offset"]
        last = self._offsets.get(room)
        self._say(last is None or offset == last + 1, f"offset {offset} after {last}", frame)
        self._offsets[room] = offset
        self._say(frame["ts"] >= self._ts.get(room, 0), "time went back", frame)
        self._ts[room] = frame["ts"]

    def _exited(self, frame: dict) -> None:
        exec_id = frame["exec"]
        self._say(exec_id not in self._over, "a second end", frame)
        self._over.add(exec_id)
        reasonable = ("reason" in frame) == ("message" in frame) == ("retryable" in frame)
        self._say(reasonable and frame["ok"] == ("reason" not in frame), "an odd end", frame)
        self._say(not frame["ok"] or frame["exitCode"] == 0, "ok with another exit code", frame)

    def _output(self, frame: dict) -> None:
        exec_id, stream = frame["exec"], frame["stream"]
        self._say(exec_id in self._known, "output before its start", frame)
        self._say(exec_id not in self._over, "output after its end", frame)
        at = frame["at"] if frame["type"] == "exec.output" else frame["from"]
        ends = self._known.setdefault(exec_id, {})
        self._say(at <= ends.get(stream, 0), f"a hole without a gap at {ends}", frame)
        if frame["type"] == "exec.output":
            self._say(len(data_of(frame)) == frame["size"], "size is not that of data", frame)
            self._say(set(frame) & {"data", "base64"} != {"data", "base64"}, "data twice", frame)
            ends[stream] = at + frame["size"]
        else:
            ends[stream] = frame["to"]

    def _say(self, held: bool, what: str, facts: object) -> None:
        if not held:
            self.broken.append(f"{what}: {facts!r:.600}")
