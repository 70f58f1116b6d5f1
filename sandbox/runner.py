"""The runner: PID 1 of a sandbox. It spawns commands, carries their bytes, and ends them.

One file of standard-library Python, sent over stdin at each start, so it imports nothing of the
project. It decides nothing about rooms or results: it reports what the kernel said.

Towards it: one JSON object per line with the session's nonce `n` and a rising sequence number `s`.
From it: length-prefixed frames (`frames.py` is the other side). It keeps deadlines, output limits
and unacknowledged output itself, also while nobody is attached.
"""

import binascii
import ctypes
import errno
import fcntl
import heapq
import json
import os
import select
import signal
import struct
import sys
import termios
import time
from collections import deque

MAGIC = b"\xd7DUET\r\n\x00"  # followed by 16 bytes of nonce: where a new client starts to read
CHUNK_BYTES = 65536  # a pipe holds no more
KEPT_STREAM_BYTES = 256 * 1024  # unacknowledged output kept for a later client
KEPT_TOTAL_BYTES = 1024 * 1024
INPUT_BYTES = 1024 * 1024  # the client's window is a quarter of this; more is a broken client
LINE_BYTES = 4 * 1024 * 1024
GRACE_S = 0.5  # between TERM and KILL: enough to remove a lock file, short enough for a click
TICK_S = 0.01  # how often a dying tree is looked at
PTY_QUIET_S = 0.05  # a terminal hands over what was written to it a little later
DEFAULT_FILTER = 0x33  # the kernel's own coredump_filter; every other value is a command's tag
SLOTS = [n for n in range(1, 0x200) if n != DEFAULT_FILTER]
ENDED_KEPT = 512  # ends that no client has confirmed
STREAMS = ("stdout", "stderr", "pty")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ALL_SIGNALS = [s for s in range(1, 65) if s not in (9, 19, 32, 33)]
HEADER = struct.Struct("!IcBQB")  # length, b"O", stream, position, length of the exec's id


def output_header(exec_id, stream, at, size):
    name = exec_id.encode()
    return HEADER.pack(11 + len(name) + size, b"O", stream, at, len(name)) + name


def control_frame(message):
    body = json.dumps(message, separators=(",", ":")).encode()
    return struct.pack("!Ic", 1 + len(body), b"J") + body


class Stream:
    """One output of one command: how far it was read, may be sent, and is stored."""

    __slots__ = ("armed", "at", "code", "exec", "fd", "granted", "kept", "left", "size")

    def __init__(self, owner, code, fd, granted):
        self.exec, self.code, self.fd, self.granted = owner, code, fd, granted
        self.at = self.size = 0
        self.kept = deque()
        self.left = None  # bytes still to be read after the command's own end
        self.armed = False

    @property
    def finished(self):
        return self.fd < 0 or self.left == 0 or self.exec.mute


class Exec:
    """One command, from its spawn until its end is confirmed."""

    def __init__(self, message, slot):
        self.id, self.slot = message["x"], slot
        self.limit = message["limit"]
        self.pid = 0
        self.streams = []
        self.input_fd, self.input, self.input_size, self.input_at = -1, deque(), 0, 0
        self.input_eof = False
        self.why = None  # our own reason to end it
        self.kill_at = None
        self.status = None
        self.mute = self.done = self.gone = False
        self.end = None
        self.began = time.monotonic()
        self.oom = 0


class Runner:
    def __init__(self, fd_in, fd_out):
        self.fd_in, self.fd_out = fd_in, fd_out
        self.nonce, self.seq, self.line = "", 0, b""
        self.out, self.kept_bytes = deque(), 0
        self.execs, self.by_pid, self.by_fd = {}, {}, {}
        self.free, self.lingering = deque(SLOTS), {}
        self.timers, self.timer_no = [], 0
        self.stopping = False
        self.oom_seen = 0
        self.poll, self.reads = select.epoll(), select.epoll()
        self.handlers = {}
        self.filter_fd = os.open("/proc/self/coredump_filter", os.O_WRONLY)
        self.score_fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        with open("/proc/self/oom_score_adj", "rb") as file:
            self.score = file.read()
        self.signal_fd = self.harden()
        self.watch(self.signal_fd, self.on_signal)
        self.watch(fd_in, self.on_input)
        self.watch(self.reads.fileno(), self.on_streams)

    def harden(self):
        """Out of reach of the commands: not traceable, and SIGTERM counts only from outside."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        wanted = {signal.SIGCHLD, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
        mask = (ctypes.c_uint64 * 16)(sum(1 << (s - 1) for s in wanted))
        return libc.signalfd(-1, mask, 0o2004000)  # SFD_NONBLOCK, SFD_CLOEXEC

    def watch(self, fd, handler, events=select.EPOLLIN):
        self.handlers[fd] = handler
        self.poll.register(fd, events)

    def unwatch(self, fd):
        if self.handlers.pop(fd, None):
            self.poll.unregister(fd)

    def after(self, delay, action, *args):
        self.timer_no += 1
        heapq.heappush(self.timers, (time.monotonic() + delay, self.timer_no, action, args))

    def run(self):
        while True:
            wait = max(0.0, self.timers[0][0] - time.monotonic()) if self.timers else None
            for fd, _ in self.poll.poll(wait):
                if handler := self.handlers.get(fd):
                    handler()
            while self.timers and self.timers[0][0] <= time.monotonic():
                _, _, action, args = heapq.heappop(self.timers)
                action(*args)

    # --- the wire -------------------------------------------------------------------------------

    def on_input(self):
        data = os.read(self.fd_in, CHUNK_BYTES)
        if not data:  # the engine let go of our stdin; look again later rather than spin
            self.unwatch(self.fd_in)
            self.after(0.1, self.watch, self.fd_in, self.on_input)
            return
        *lines, self.line = (self.line + data).split(b"\n")
        if len(self.line) > LINE_BYTES:
            self.line = b""
        for line in lines:
            if line:
                self.on_line(line)

    def on_line(self, line):
        try:
            message = json.loads(line)
            kind, nonce, seq = message["t"], message["n"], message["s"]
            if kind == "hello":
                self.on_hello(message)
            elif nonce == self.nonce and seq > self.seq:
                self.seq = seq
                getattr(self, "do_" + kind)(message)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.send_json({"t": "fault", "message": f"{type(error).__name__}: {error}"[:300]})

    def on_hello(self, message):
        """A new client: what lies unsent is for nobody, what it lacks is sent again."""
        nonce = binascii.unhexlify(message["n"])
        self.nonce, self.seq = message["n"], message["s"]
        self.out.clear()
        self.write(MAGIC + nonce)
        rows = [
            {"x": ex.id, "streams": {STREAMS[s.code]: s.at for s in ex.streams}, "end": ex.end}
            for ex in self.execs.values()
        ]
        self.send_json({"t": "hello", "v": 1, "execs": rows})
        have = message.get("have") or {}
        for ex in self.execs.values():
            for stream in ex.streams:
                self.replay(stream, int((have.get(ex.id) or {}).get(STREAMS[stream.code], 0)))
            if ex.end:
                self.send_json(ex.end)

    def replay(self, stream, have):
        self.acknowledge(stream, have)
        for at, data in list(stream.kept):
            skip = max(0, have - at)
            self.send_output(stream, at + skip, data[skip:])

    def do_ping(self, message):
        self.send_json({"t": "pong", "i": message["i"]})

    def do_flow(self, message):
        ex = self.execs.get(message["x"])
        for stream in ex.streams if ex else ():
            name = STREAMS[stream.code]
            self.acknowledge(stream, message["a"].get(name, 0))
            if message["g"].get(name, 0) > stream.granted:
                stream.granted = message["g"][name]
                self.arm(stream)

    def acknowledge(self, stream, position):
        while stream.kept and stream.kept[0][0] + len(stream.kept[0][1]) <= position:
            self.forget(stream)

    def forget(self, stream):
        size = len(stream.kept.popleft()[1])
        stream.size -= size
        self.kept_bytes -= size

    def keep(self, stream, data):
        stream.kept.append((stream.at, data))
        stream.size += len(data)
        self.kept_bytes += len(data)
        while stream.size > KEPT_STREAM_BYTES or (
            stream.kept and self.kept_bytes > KEPT_TOTAL_BYTES
        ):
            self.forget(stream)

    def send_output(self, stream, at, data):
        self.write(output_header(stream.exec.id, stream.code, at, len(data)), data)

    def send_json(self, message):
        self.write(control_frame(message))

    def write(self, *parts):
        if not self.out:
            try:
                done = os.writev(self.fd_out, parts)
            except BlockingIOError:
                done = 0
            except OSError:  # nobody reads: the next hello starts afresh
                return
            if done == sum(map(len, parts)):
                return
            self.unwatch(self.reads.fileno())
            self.watch(self.fd_out, self.on_writable, select.EPOLLOUT)
        else:
            done = 0
        for part in parts:
            if done < len(part):
                self.out.append(memoryview(part)[done:])
            done = max(0, done - len(part))

    def on_writable(self):
        try:
            while self.out:
                done = os.writev(self.fd_out, [self.out[n] for n in range(min(16, len(self.out)))])
                while done and done >= len(self.out[0]):
                    done -= len(self.out.popleft())
                if done:
                    self.out[0] = self.out[0][done:]
        except BlockingIOError:
            return
        except OSError:
            self.out.clear()
        self.unwatch(self.fd_out)
        self.watch(self.reads.fileno(), self.on_streams)

    # --- output ---------------------------------------------------------------------------------

    def arm(self, stream):
        wanted = stream.fd >= 0 and (
            stream.exec.done
            or stream.exec.mute
            or (stream.at < stream.granted and stream.left != 0)
        )
        if wanted != stream.armed:
            stream.armed = wanted
            if wanted:
                self.reads.register(stream.fd, select.EPOLLIN)
            elif stream.fd >= 0:
                self.reads.unregister(stream.fd)

    def on_streams(self):
        for fd, _ in self.reads.poll(0, 16):
            if stream := self.by_fd.get(fd):
                self.pull(stream)
            if self.out:
                return

    def pull(self, stream):
        """Read once, at most what is granted; what nobody may see any more is read and dropped."""
        ex, drop = stream.exec, stream.exec.done or stream.exec.mute
        room = CHUNK_BYTES if drop else min(CHUNK_BYTES, stream.granted - stream.at)
        if stream.left is not None and not drop:
            room = min(room, stream.left)
        if room > 0:
            try:
                data = os.read(stream.fd, room)
            except BlockingIOError:
                return
            except OSError:  # a terminal that nobody holds open any more
                data = b""
            if not data:
                self.close(stream)
            elif not drop:
                self.emit(ex, stream, data)
        self.arm(stream)
        if ex.status is not None and not ex.done:
            self.settle(ex)

    def emit(self, ex, stream, data):
        if stream.left is not None:
            stream.left -= len(data)
        if len(data) > ex.limit:
            data = data[: ex.limit]
            ex.mute = True
        ex.limit -= len(data)
        if data:
            self.send_output(stream, stream.at, data)
            self.keep(stream, data)
            stream.at += len(data)
        if ex.mute:
            for other in ex.streams:
                self.arm(other)
            self.terminate(ex, "output_limit", GRACE_S)

    def close(self, stream):
        if stream.armed:
            self.reads.unregister(stream.fd)
            stream.armed = False
        if stream.fd >= 0:
            self.by_fd.pop(stream.fd, None)
            if stream.code == 2:
                self.close_input(stream.exec)
            os.close(stream.fd)
            stream.fd = -1

    # --- spawning -------------------------------------------------------------------------------

    def do_run(self, message):
        if message["x"] in self.execs:
            return
        slot = self.take_slot()
        ex = self.execs[message["x"]] = Exec(message, slot)
        ex.oom = self.oom_kills()
        if not slot:
            self.finish(ex, {"spawn": "the sandbox runs too many commands", "errno": errno.EAGAIN})
            return
        try:
            self.spawn(ex, message)
        except (OSError, ValueError) as error:
            for stream in ex.streams:
                self.close(stream)
            self.close_input(ex)
            number = getattr(error, "errno", None) or errno.EINVAL
            self.finish(ex, {"spawn": spawn_message(error), "errno": number})
            return
        self.by_pid[ex.pid] = ex
        self.send_json({"t": "started", "x": ex.id, "pid": ex.pid})
        self.after(message["ms"] / 1000, self.terminate, ex, "timeout", GRACE_S)

    def spawn(self, ex, message):
        cwd, credit = message["cwd"], message["credit"]
        env = {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb", "SHELL": "/bin/bash"}
        env["HOME"] = os.environ.get("HOME") or "/root"
        env["TERM"] = "xterm-256color" if message.get("pty") else "dumb"
        env.update(message["env"], PWD=cwd)
        argv = message.get("argv") or ["bash", "-c", message["command"]]
        ends = []
        try:
            os.chdir(cwd)
            path = find(argv[0], env.get("PATH") or PATH) if message.get("argv") else "/bin/bash"
            wire = self.terminal if message.get("pty") else self.pipes
            actions = wire(ex, message, credit, ends)
            ex.pid = self.tagged_spawn(ex.slot, path, argv, env, actions)
        finally:
            os.chdir("/")
            for fd in ends:
                os.close(fd)
        for stream in ex.streams:
            os.set_blocking(stream.fd, False)
            self.by_fd[stream.fd] = stream
            self.arm(stream)

    def tagged_spawn(self, slot, path, argv, env, actions):
        """The kernel hands coredump_filter to every descendant: that is the command's tag."""
        os.pwrite(self.filter_fd, b"0x%x" % slot, 0)
        os.pwrite(self.score_fd, b"1000", 0)
        try:
            return os.posix_spawn(
                path, argv, env, file_actions=actions, setsid=True, setsigmask=(),
                setsigdef=ALL_SIGNALS,
            )  # fmt: skip
        finally:
            os.pwrite(self.score_fd, self.score, 0)
            os.pwrite(self.filter_fd, b"0x%x" % DEFAULT_FILTER, 0)

    def pipes(self, ex, message, credit, ends):
        actions = []
        if message.get("stdin"):
            theirs, ex.input_fd = os.pipe()
            os.set_blocking(ex.input_fd, False)
            ends.append(theirs)
            actions.append((os.POSIX_SPAWN_DUP2, theirs, 0))
        else:
            actions.append((os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0))
        for code in (0, 1):
            ours, theirs = os.pipe()
            ends.append(theirs)
            ex.streams.append(Stream(ex, code, ours, credit))
            actions.append((os.POSIX_SPAWN_DUP2, theirs, code + 1))
        return actions

    def terminal(self, ex, message, credit, ends):
        ours, theirs = os.openpty()
        ends.append(theirs)
        ex.streams.append(Stream(ex, 2, ours, credit))
        ex.input_fd = ours
        resize(ours, *message["pty"])
        opened = (os.POSIX_SPAWN_OPEN, 0, os.ttyname(theirs), os.O_RDWR, 0)  # and so controlling
        return [opened, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]

    def take_slot(self):
        if not self.free:
            used = {tag for _, tag in tags()} | {ex.slot for ex in self.by_pid.values()}
            used |= {ex.slot for ex in self.execs.values() if not ex.done}
            for name, slot in list(self.lingering.items()):
                if slot not in used:
                    del self.lingering[name]
                    self.free.append(slot)
        return self.free.popleft() if self.free else 0

    # --- input, signals, ends -------------------------------------------------------------------

    def do_in(self, message):
        ex = self.execs.get(message["x"])
        if not ex:
            return
        data = binascii.a2b_base64(message["d"])
        if ex.input_fd < 0 or ex.input_size + len(data) > INPUT_BYTES:
            ex.input_at += len(data)
            self.send_json({"t": "in", "x": ex.id, "at": ex.input_at, "closed": True})
            return
        if data:
            ex.input.append(data)
            ex.input_size += len(data)
        if message.get("eof"):
            ex.input_eof = True
        self.feed(ex)

    def feed(self, ex):
        before = ex.input_at
        try:
            while ex.input:
                done = os.write(ex.input_fd, ex.input[0])
                ex.input_at += done
                ex.input_size -= done
                ex.input[0] = ex.input[0][done:]
                if not ex.input[0]:
                    ex.input.popleft()
        except BlockingIOError:
            self.await_input(ex)
        except OSError:
            ex.input_at += ex.input_size
            self.close_input(ex)
        if not ex.input and ex.input_fd >= 0:
            self.unwatch_input(ex)
            if ex.input_eof:
                self.end_input(ex)
        if ex.input_at != before or ex.input_fd < 0:
            self.send_json({"t": "in", "x": ex.id, "at": ex.input_at, "closed": ex.input_fd < 0})

    def await_input(self, ex):
        # A terminal's one fd is watched for reading elsewhere (another epoll), so this is free.
        if ex.input_fd not in self.handlers:
            self.watch(ex.input_fd, lambda: self.feed(ex), select.EPOLLOUT)

    def unwatch_input(self, ex):
        self.unwatch(ex.input_fd)

    def end_input(self, ex):
        if ex.streams and ex.streams[0].code == 2:
            ex.input_eof = False
            try:
                os.write(ex.input_fd, b"\x04")
            except OSError:
                pass
        else:
            self.close_input(ex)

    def close_input(self, ex):
        fd, ex.input_fd = ex.input_fd, -1
        ex.input.clear()
        ex.input_size = 0
        if fd >= 0:
            self.unwatch(fd)
            if not (ex.streams and ex.streams[0].code == 2):
                os.close(fd)

    def do_size(self, message):
        ex = self.execs.get(message["x"])
        if ex and ex.streams and ex.streams[0].code == 2 and ex.streams[0].fd >= 0:
            resize(ex.streams[0].fd, message["c"], message["r"])

    def do_sig(self, message):
        ex = self.execs.get(message["x"])
        if ex and ex.pid and ex.status is None:
            send_signal(os.killpg, ex.pid, message["sig"])

    def do_cancel(self, message):
        ex = self.execs.get(message["x"])
        if ex and not ex.done:
            self.terminate(ex, "cancelled", message.get("grace", GRACE_S))
        elif message["x"] in self.lingering:
            kill_tree(self.lingering[message["x"]])

    def do_forget(self, message):
        ex = self.execs.get(message["x"])
        if ex and ex.done:
            del self.execs[ex.id]
            for stream in ex.streams:
                while stream.kept:
                    self.forget(stream)

    def terminate(self, ex, why, grace):
        """TERM to all it started, KILL after the grace; the first reason given is the one told."""
        if ex.done or ex.status is not None or not ex.pid:
            return
        if ex.why is None:
            ex.why = why
            # The group at once, so that a shell does not go on to its next line first.
            send_signal(os.killpg, ex.pid, signal.SIGTERM)
            for pid, tag in tags():
                if tag == ex.slot and not in_group(pid, ex.pid):
                    send_signal(os.kill, pid, signal.SIGTERM)
                    send_signal(os.kill, pid, signal.SIGCONT)
            send_signal(os.killpg, ex.pid, signal.SIGCONT)
            self.after(0, self.tick, ex)
        kill_at = time.monotonic() + grace
        ex.kill_at = kill_at if ex.kill_at is None else min(ex.kill_at, kill_at)

    def tick(self, ex):
        """Look at a dying tree until a scan finds nothing of it."""
        alive = any(tag == ex.slot for _, tag in tags())
        if not alive:
            ex.gone = True
            self.send_json({"t": "killed", "x": ex.id})
            self.on_child()
            self.settle(ex)
            return
        if time.monotonic() >= ex.kill_at:
            if ex.status is None:
                send_signal(os.killpg, ex.pid, signal.SIGKILL)
            kill_tree(ex.slot)
        self.after(TICK_S, self.tick, ex)

    def on_signal(self):
        while True:
            try:
                info = os.read(self.signal_fd, 128)
            except BlockingIOError:
                break
            number, sender = struct.unpack_from("=I8xI", info)
            if number == signal.SIGTERM and sender == 0:
                self.shut_down()
        self.on_child()

    def shut_down(self):
        if not self.stopping:
            self.stopping = True
            send_signal(os.kill, -1, signal.SIGTERM)
            send_signal(os.kill, -1, signal.SIGCONT)
            self.after(GRACE_S, os._exit, 0)

    def on_child(self):
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

    def on_exit(self, ex, status):
        ex.status = status
        for stream in ex.streams:
            stream.left = readable_bytes(stream.fd) if stream.code != 2 and stream.fd >= 0 else None
            self.arm(stream)
        if ex.streams[0].code == 2:
            self.after(PTY_QUIET_S, self.pty_quiet, ex, -1)
        self.settle(ex)

    def pty_quiet(self, ex, before):
        """A background child may hold the terminal open for ever: then silence is the end."""
        stream = ex.streams[0]
        if stream.fd < 0:
            return
        if stream.at == before and stream.at < stream.granted:
            stream.left = 0
            self.arm(stream)
            self.settle(ex)
        else:
            self.after(PTY_QUIET_S, self.pty_quiet, ex, stream.at)

    def settle(self, ex):
        """Tell the end once: its process is reaped, what we killed is gone, what it said is out."""
        if ex.done or ex.status is None or (ex.why and not ex.gone):
            return
        if all(stream.finished for stream in ex.streams):
            self.finish(ex, self.verdict(ex))
            for stream in ex.streams:
                self.arm(stream)

    def verdict(self, ex):
        code = os.waitstatus_to_exitcode(ex.status)
        killed = code in (-9, 137) and ex.why is None
        oom = killed and self.oom_kills() > max(ex.oom, self.oom_seen)
        if oom:
            self.oom_seen = self.oom_kills()
        return {"code": code if code >= 0 else None, "sig": -code if code < 0 else None, "oom": oom}

    def finish(self, ex, verdict):
        ex.done = True
        if ex.slot:
            self.lingering[ex.id] = ex.slot
        self.close_input(ex)
        size = {STREAMS[s.code]: s.at for s in ex.streams}
        ms = round((time.monotonic() - ex.began) * 1000)
        ex.end = {"t": "exit", "x": ex.id, "why": ex.why, "ms": ms, "bytes": size, **verdict}
        self.send_json(ex.end)
        if len(self.timers) > 256 + 4 * len(self.execs):
            self.timers = [
                t for t in self.timers if not getattr(t[3][:1] and t[3][0], "done", False)
            ]
            heapq.heapify(self.timers)
        if len(self.execs) > len(SLOTS) + ENDED_KEPT:
            self.do_forget({"x": next(e.id for e in self.execs.values() if e.done)})

    def oom_kills(self):
        for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
            try:
                with open(path, "rb") as file:
                    for line in file:
                        if line.startswith(b"oom_kill "):
                            return int(line.split()[1])
            except OSError:
                continue
        return 0


def tags():
    """(pid, tag) of every living process but ours; a zombie has no memory and so no tag."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            try:
                with open(f"/proc/{name}/coredump_filter", "rb") as file:
                    found.append((int(name), int(file.read() or b"0", 16)))
            except (OSError, ValueError):
                continue
    return found


def kill_tree(slot):
    """Stop until a scan finds nothing new, so that nothing forks away, then kill."""
    known = set()
    for _ in range(100):
        new = {pid for pid, tag in tags() if tag == slot} - known
        if not new:
            break
        for pid in new:
            send_signal(os.kill, pid, signal.SIGSTOP)
        known |= new
    for pid in known:
        send_signal(os.kill, pid, signal.SIGKILL)


def send_signal(how, pid, number):
    try:
        how(pid, number)
    except OSError:
        pass  # it is gone, and that is what was wanted


def in_group(pid, group):
    try:
        return os.getpgid(pid) == group
    except OSError:
        return False


def readable_bytes(fd):
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]


def resize(fd, cols, rows):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def find(program, path):
    """Where `program` lies, as execvp looks it up, but by the command's own PATH."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", program)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


def spawn_message(error):
    if not isinstance(error, OSError):
        return str(error)
    name = error.filename or error.filename2
    return f"{error.strerror}: {name}" if name else str(error.strerror)


def main():
    fd_in, fd_out = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.set_blocking(fd_out, False)
    os.umask(0o022)
    sys.setswitchinterval(1)
    Runner(fd_in, fd_out).run()


if __name__ == "__main__":
    main()
