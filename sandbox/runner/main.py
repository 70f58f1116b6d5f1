"""The runner itself: messages in, commands run, output carried, ends told.

It keeps deadlines and output limits also while no client is attached.
"""

import binascii
import errno
import os
import select
import signal
import struct
import time

from sandbox.runner.execs import PTY, Exec, Kept, Stream
from sandbox.runner.inputs import Inputs
from sandbox.runner.loop import IN, Loop
from sandbox.runner.slots import Slots
from sandbox.runner.stdio import pipes, terminal
from sandbox.runner.system import OomCounter, harden, readable_bytes, resize
from sandbox.runner.tree import (
    SLOTS,
    Spawner,
    environment,
    kill_tree,
    send_signal,
    spawn_message,
    tagged,
    terminate_tree,
)
from sandbox.runner.wire import Message, Wire

CHUNK_BYTES = 65_536  # a pipe holds no more
STREAMS_PER_TURN = 16
GRACE_S = 0.5  # between TERM and KILL: enough to remove a lock file, short enough for a click
TICK_S = 0.01  # how often a dying tree is looked at
PTY_QUIET_S = 0.05  # a terminal hands over what was written to it a little later
ENDED_KEPT = 512  # ends that no client has confirmed


class Runner:
    def __init__(self, fd_in: int, fd_out: int) -> None:
        self.loop = Loop()
        self.reads = select.epoll()
        self.by_fd: dict[int, Stream] = {}
        self.execs: dict[str, Exec] = {}
        self.by_pid: dict[int, Exec] = {}
        self.slots = Slots()
        self.kept = Kept()
        self.stopping = False
        self.oom_kills = OomCounter()
        self.oom_told = 0
        self.spawner = Spawner()
        self.signals = harden()
        self.loop.watch(self.signals, self.on_signal)
        self.loop.watch(self.reads.fileno(), self.on_streams)
        self.wire = Wire(
            self.loop, (fd_in, fd_out), self.on_hello, self.on_message, self.on_blocked
        )
        self.inputs = Inputs(self.loop, self.wire.send)

    # --- the client -----------------------------------------------------------------------------

    def on_hello(self, message: Message) -> None:
        """Tell a new client what there is; it hears of an exec once it has claimed it."""
        del message
        for ex in self.execs.values():
            ex.claimed = False
        rows = [ex.row() for ex in self.execs.values()]
        self.wire.send({"t": "hello", "v": 2, "execs": rows})

    def do_claim(self, message: Message) -> None:
        """Send again what the client lacks of it, then go on. `have` acknowledges."""
        ex = self.execs.get(message["x"])
        if not ex:
            return
        ex.claimed = True
        for stream in ex.streams:
            self.replay(stream, int(message["have"].get(stream.name, 0)))
        if ex.end:
            self.wire.send(ex.end)

    def replay(self, stream: Stream, position: int) -> None:
        lacking = self.kept.since(stream, position)
        first = lacking[0][0] if lacking else stream.at
        if first > position:
            self.wire.send({"t": "gap", "x": stream.exec.id, "st": stream.name, "at": first})
        for at, data in lacking:
            self.wire.send_output(stream.exec.id, stream.code, at, data)
        self.arm_waiting()

    def tell(self, ex: Exec, message: Message) -> None:
        if ex.claimed:
            self.wire.send(message)

    def on_message(self, message: Message) -> None:
        getattr(self, "do_" + message["t"])(message)

    def do_ping(self, message: Message) -> None:
        self.wire.send({"t": "pong", "i": message["i"]})

    def do_flow(self, message: Message) -> None:
        ex = self.execs.get(message["x"])
        for stream in ex.streams if ex else ():
            self.kept.acknowledge(stream, message["a"].get(stream.name, 0))
            stream.granted = max(stream.granted, message["g"].get(stream.name, 0))
            self.arm(stream)
        self.arm_waiting()

    def do_forget(self, message: Message) -> None:
        ex = self.execs.get(message["x"])
        if ex and ex.done:
            del self.execs[ex.id]
            for stream in ex.streams:
                self.kept.drop(stream)
            self.arm_waiting()

    # --- output ---------------------------------------------------------------------------------

    def on_blocked(self, blocked: bool) -> None:  # noqa: FBT001
        if blocked:
            self.loop.unwatch(self.reads.fileno())
        else:
            self.loop.watch(self.reads.fileno(), self.on_streams)

    def arm_waiting(self) -> None:
        """There is room again for what waited for it."""
        waiting, self.kept.waiting = self.kept.waiting, set()
        for stream in waiting:
            self.arm(stream)

    def arm(self, stream: Stream) -> None:
        """Read from it exactly while somebody may have what it says, or nobody wants it."""
        wanted = stream.fd >= 0 and (stream.dropping or self.kept.room(stream) > 0)
        if wanted != stream.armed and stream.fd >= 0:
            stream.armed = wanted
            if wanted:
                self.reads.register(stream.fd, IN)
            else:
                self.reads.unregister(stream.fd)

    def on_streams(self) -> None:
        for fd, _ in self.reads.poll(0, STREAMS_PER_TURN):
            if stream := self.by_fd.get(fd):
                self.pull(stream)
            if self.wire.blocked:
                return

    def pull(self, stream: Stream) -> None:
        room = CHUNK_BYTES if stream.dropping else min(CHUNK_BYTES, self.kept.room(stream))
        try:
            data = os.read(stream.fd, room) if room > 0 else b""
        except BlockingIOError:
            return
        except OSError:  # a terminal that nobody holds open any more
            data = b""
        if not data and room > 0:
            self.close(stream)
        elif not stream.dropping:
            self.emit(stream, data)
        self.arm(stream)
        self.settle(stream.exec)

    def emit(self, stream: Stream, data: bytes) -> None:
        ex = stream.exec
        if stream.left is not None:
            stream.left -= len(data)
        over = len(data) > ex.left_bytes
        data = data[: ex.left_bytes]
        ex.left_bytes -= len(data)
        if data:
            if ex.claimed:
                self.wire.send_output(ex.id, stream.code, stream.at, data)
            self.kept.add(stream, data)
            stream.at += len(data)
        if over:
            ex.mute = True
            for each in ex.streams:
                self.arm(each)
            self.terminate(ex, "output_limit")

    def close(self, stream: Stream) -> None:
        if stream.fd < 0:
            return
        if stream.armed:
            self.reads.unregister(stream.fd)
            stream.armed = False
        if stream.code == PTY:
            self.inputs.close(stream.exec)
        self.by_fd.pop(stream.fd, None)
        os.close(stream.fd)
        stream.fd = -1

    # --- spawning -------------------------------------------------------------------------------

    def do_run(self, message: Message) -> None:
        if message["x"] in self.execs:
            return
        slot = self.slots.take(other.slot for other in self.by_pid.values())
        ex = Exec(message["x"], slot, message["limit"], message["ms"])
        self.execs[ex.id] = ex
        ex.oom_before = self.oom_kills.read()
        if not ex.slot:
            what = "it runs as many commands as it can"
            self.finish(ex, {"spawn": what, "errno": errno.EAGAIN})
            return
        try:
            self.spawn(ex, message)
        except (OSError, ValueError) as error:
            self.inputs.close(ex)
            for stream in ex.streams:
                self.close(stream)
            number = getattr(error, "errno", None) or errno.EINVAL
            self.finish(ex, {"spawn": spawn_message(error), "errno": number})
            return
        self.by_pid[ex.pid] = ex
        ex.deadline = self.loop.after(message["ms"] / 1000, self.terminate, ex, "timeout")
        self.wire.send_soon({"t": "started", "x": ex.id, "pid": ex.pid})

    def spawn(self, ex: Exec, message: Message) -> None:
        size, cwd = message.get("pty"), message["cwd"]
        env = environment(message["env"], cwd, terminal=bool(size))
        argv = message.get("argv") or ["/bin/bash", "-c", message["command"]]
        theirs: list[int] = []
        try:
            actions = terminal(ex, message, theirs) if size else pipes(ex, message, theirs)
            ex.pid = self.spawner.spawn(ex.slot, argv, env, cwd, actions)
        finally:
            for fd in theirs:
                os.close(fd)
        for stream in ex.streams:
            os.set_blocking(stream.fd, False)
            self.by_fd[stream.fd] = stream
            self.arm(stream)

    def do_in(self, message: Message) -> None:
        if ex := self.execs.get(message["x"]):
            data = binascii.a2b_base64(message["d"])
            self.inputs.take(ex, data, eof=bool(message.get("eof")))

    def do_size(self, message: Message) -> None:
        ex = self.execs.get(message["x"])
        if ex and ex.terminal and ex.streams[0].fd >= 0:
            resize(ex.streams[0].fd, message["c"], message["r"])

    # --- ends -----------------------------------------------------------------------------------

    def do_sig(self, message: Message) -> None:
        ex = self.execs.get(message["x"])
        if ex and ex.pid and ex.status is None:
            send_signal(os.killpg, ex.pid, message["sig"])

    def do_cancel(self, message: Message) -> None:
        ex = self.execs.get(message["x"])
        if ex and not ex.done:
            self.terminate(ex, "cancelled", message["grace"])
        else:  # it ended; what it left in the background has its tag
            self.slots.kill_children(message["x"])

    def do_children(self, message: Message) -> None:
        rows = self.slots.children()
        self.wire.send({"t": "answer", "i": message["i"], "rows": rows})

    def do_kill_children(self, message: Message) -> None:
        killed = self.slots.kill_children(message["x"])
        self.wire.send({"t": "answer", "i": message["i"], "killed": killed})

    def terminate(self, ex: Exec, why: str, grace_s: float = GRACE_S) -> None:
        """TERM to all it started, KILL after the grace; the first reason given is the one told."""
        if ex.done or ex.status is not None or not ex.pid:
            return
        kill_at = time.monotonic() + grace_s
        if ex.why is None:
            ex.why, ex.kill_at = why, kill_at
            if grace_s > 0:
                terminate_tree(ex.pid, ex.slot)
            self.loop.after(0, self.tick, ex)
        ex.kill_at = min(ex.kill_at, kill_at)

    def tick(self, ex: Exec) -> None:
        """Look at a dying tree until a scan finds nothing of it."""
        if time.monotonic() >= ex.kill_at:
            if ex.status is None:
                send_signal(os.killpg, ex.pid, signal.SIGKILL)
            kill_tree(ex.slot)
        self.reap()
        if tagged(ex.slot) or ex.status is None:
            self.loop.after(TICK_S, self.tick, ex)
            return
        ex.gone = True
        self.tell(ex, {"t": "killed", "x": ex.id})
        self.settle(ex)

    def on_signal(self) -> None:
        try:
            while info := os.read(self.signals, 128):
                number, sender = struct.unpack_from("=I8xI", info)
                if number == signal.SIGTERM and sender == 0:  # from outside this pid namespace
                    self.shut_down()
        except BlockingIOError:
            pass
        self.reap()

    def shut_down(self) -> None:
        if not self.stopping:
            self.stopping = True
            send_signal(os.kill, -1, signal.SIGTERM)
            send_signal(os.kill, -1, signal.SIGCONT)
            self.loop.after(GRACE_S, os._exit, 0)

    def reap(self) -> None:
        """Every zombie of the container is ours in the end."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                if self.stopping:
                    os._exit(0)
                return
            if not pid:
                return
            if ex := self.by_pid.pop(pid, None):
                self.on_exit(ex, status)

    def on_exit(self, ex: Exec, status: int) -> None:
        """What lies in its pipes now is its own; what a child of it prints later is not."""
        ex.status = status
        for stream in ex.streams:
            if stream.code != PTY and stream.fd >= 0:
                stream.left = readable_bytes(stream.fd)
            self.arm(stream)
        if ex.terminal:
            self.loop.after(PTY_QUIET_S, self.on_quiet, ex, -1)
        self.settle(ex)

    def on_quiet(self, ex: Exec, before: int) -> None:
        """A background child may hold the terminal open for ever: then silence is the end."""
        stream = ex.streams[0]
        if stream.fd >= 0 and not ex.done:
            if stream.at == before and self.kept.room(stream) > 0:
                stream.left = 0
                self.arm(stream)
                self.settle(ex)
            else:
                self.loop.after(PTY_QUIET_S, self.on_quiet, ex, stream.at)

    def settle(self, ex: Exec) -> None:
        # What dies while the sandbox is stopped dies of that, which its end would not say.
        if ex.settled and not ex.done and not self.stopping:
            self.finish(ex, self.verdict(ex))

    def verdict(self, ex: Exec) -> Message:
        code = os.waitstatus_to_exitcode(ex.status or 0)
        killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL) and ex.why is None
        count = self.oom_kills.read()
        oom = killed and count > max(ex.oom_before, self.oom_told)
        self.oom_told = count if oom else self.oom_told
        low = count > ex.oom_before and not oom  # something died for memory while it ran
        exited = {"code": code if code >= 0 else None, "sig": -code if code < 0 else None}
        return {**exited, "oom": oom, "low": low}

    def finish(self, ex: Exec, verdict: Message) -> None:
        if ex.deadline:
            ex.deadline.cancel()
        if ex.slot:
            self.slots.end(ex.slot, ex.id)
        self.inputs.close(ex)
        printed = {s.name: s.at for s in ex.streams}
        ms = round((time.monotonic() - ex.began) * 1000)
        ex.end = {"t": "exit", "x": ex.id, "why": ex.why, "ms": ms, "bytes": printed, **verdict}
        self.tell(ex, ex.end)
        for stream in ex.streams:
            self.kept.end(stream)
            self.arm(stream)
        if len(self.execs) > len(SLOTS) + ENDED_KEPT:
            self.do_forget({"x": next(each.id for each in self.execs.values() if each.done)})


def main() -> None:
    fds = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.set_blocking(fds[1], False)
    os.umask(0o022)
    os.chdir("/")
    Runner(*fds).loop.run()
