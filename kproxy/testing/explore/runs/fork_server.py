"""Process that forks a child for each run, kills it when it hangs, and reports its end.

It starts no thread, so children begin in milliseconds. One loop serves the explorer's socket and the pipes of all
children. Each child leads a process group, which is killed at its end. Processes that left the group, such as daemons,
become children of this process, which kills children that it has not forked.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep

from kproxy.base.system import adopt_orphans, die_with_parent
from kproxy.testing.explore.model import loads
from kproxy.testing.process import children_of, process_tree

from .child import ChildPipes, EndedChild, MessageBuffer, RunJob, ServerOrder, ServerReport, packed

GRACE = 5.0  # seconds from a run's limit, when its watchdog ends it, until it is killed
PAUSE = 0.5  # seconds between clock checks
MOST_ANSWER = 32 << 20
OUTPUT_KEPT = 16 << 10  # last bytes of a child's output
STACKS_KEPT = 64 << 10
CHUNK = 1 << 16
SHORT = 0.05  # seconds between checks for strays

ChildWork = Callable[[RunJob, ChildPipes], None]


class ForkedChild:
    def __init__(self, job: RunJob, pid: int, answer: int, output: int, stacks: int) -> None:
        self.job, self.pid, self.answer, self.output, self.stacks = job, pid, answer, output, stacks
        self.began = monotonic()
        self.until = self.began + job.limit + GRACE
        self.said, self.printed = bytearray(), bytearray()
        self.late = self.flooded = False
        self.open = {answer, output}
        self.handle = os.pidfd_open(pid)  # can be read once the child has ended

    def read(self, descriptor: int) -> None:
        """Read the child's answer or output. Only the end of the output is kept; a child with too long an answer is
        killed."""
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return
        if not data:
            self.open.discard(descriptor)
        elif descriptor == self.output:
            self.printed += data
            del self.printed[: -OUTPUT_KEPT or None]
        elif not self.flooded:
            self.said += data
            if len(self.said) > MOST_ANSWER:
                self.flooded = True
                self.said.clear()
                self.kill()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def report(self) -> EndedChild:
        """Return the end of a child that has ended. The rest of its process group is killed."""
        self.kill()  # before it is forgotten, since another group could get its number then
        _, status = os.waitpid(self.pid, 0)
        for descriptor in (self.answer, self.output):
            while descriptor in self.open and select.select([descriptor], [], [], 0)[0]:
                self.read(descriptor)
            os.close(descriptor)
        stacks = os.pread(self.stacks, STACKS_KEPT, 0)
        os.close(self.stacks)
        os.close(self.handle)
        return EndedChild(
            self.job.number, bytes(self.said), os.waitstatus_to_exitcode(status), monotonic() - self.began, self.late,
            self.flooded, stacks.decode(errors="replace"), self.printed.decode(errors="replace"),
        )  # fmt: skip


class ForkServer:
    """Loop over the explorer's socket and all children; `work` runs in each child and writes its answer."""

    def __init__(self, stream: socket.socket, work: ChildWork) -> None:
        self.stream, self.work = stream, work
        self.children: dict[int, ForkedChild] = {}
        self.coming, self.going = MessageBuffer(), bytearray()
        self.strays = False  # there may be what ended runs have left

    def serve(self) -> None:
        adopt_orphans()
        gc.collect()
        gc.freeze()  # collections in the children write to no page of what is there
        self.stream.setblocking(False)
        self._report(ServerReport(threads=len(os.listdir("/proc/self/task")) - 1))
        try:
            while self._turn():
                pass
        finally:
            for child in self.children.values():
                child.kill()
                with suppress(ChildProcessError):
                    os.waitpid(child.pid, 0)
            self.children.clear()
            until = monotonic() + GRACE
            while self._kill_strays() and monotonic() < until:
                sleep(SHORT)

    def _kill_strays(self) -> bool:
        """Kill processes that ended runs have left. Return True if there were any, since their children become strays
        as well."""
        known = {child.pid for child in self.children.values()}
        strays = [one for one in children_of(os.getpid()) if one not in known]
        for pid in strays:
            for one in process_tree(pid):
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return bool(strays)

    def _turn(self) -> bool:
        """Handle events once. Return False after the explorer has closed its socket."""
        pipes = {number: child for child in self.children.values() for number in child.open}
        poll = select.poll()
        poll.register(self.stream, select.POLLIN | (select.POLLOUT if self.going else 0))
        for number in (*pipes, *(child.handle for child in self.children.values())):
            poll.register(number, select.POLLIN)
        pause = SHORT if self.strays else PAUSE if self.children else None
        ready = dict(poll.poll(None if pause is None else pause * 1000))
        try:
            if ready.pop(self.stream.fileno(), 0) & ~select.POLLOUT and not self._take():
                return False
            self._send()
        except (BrokenPipeError, ConnectionResetError):
            return False
        for number in ready.keys() & pipes.keys():
            pipes[number].read(number)
        for child in list(self.children.values()):
            self._look(child)
        if self.strays:
            self.strays = self._kill_strays()
        return True

    def _take(self) -> bool:
        data = self.stream.recv(CHUNK)
        for message in self.coming.add(data):
            order = loads(message, ServerOrder)
            for number in order.end:
                if number in self.children:
                    self.children[number].kill()
            if order.job is not None:
                self._begin(order.job)
        return bool(data)

    def _send(self) -> None:
        if self.going:
            with suppress(BlockingIOError):
                del self.going[: self.stream.send(self.going)]

    def _report(self, report: ServerReport) -> None:
        self.going += packed(report)

    def _look(self, child: ForkedChild) -> None:
        if child.has_ended():
            del self.children[child.job.number]
            self._report(ServerReport(child.report()))
            self.strays = True
        elif monotonic() > child.until:
            child.late = True
            child.kill()

    def _begin(self, job: RunJob) -> None:
        opened: list[int] = []
        flush_streams()
        try:
            for pipe in (os.pipe, os.pipe):
                opened += pipe()
            opened.append(os.memfd_create("stacks"))
            for number in (opened[0], opened[2]):
                os.set_blocking(number, False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of threads that a test's module has: they are not in the child
                pid = os.fork()
        except OSError as error:
            for number in opened:
                os.close(number)
            self._report(ServerReport(EndedChild(job.number, problem=f"no child could be forked: {error}")))
            return
        answers, answer, prints, output, stacks = opened
        if pid == 0:
            self._be_child(job, ChildPipes(answer, stacks), output, (answers, prints))
        for number in (answer, output):
            os.close(number)
        with suppress(OSError):  # the child does the same, and whoever is first has done it for both
            os.setpgid(pid, pid)
        self.children[job.number] = ForkedChild(job, pid, answers, prints, stacks)

    def _be_child(self, job: RunJob, pipes: ChildPipes, output: int, others: tuple[int, ...]) -> None:
        code = 1
        try:
            os.setpgid(0, 0)
            die_with_parent()
            adopt_orphans()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for number in (1, 2):
                os.dup2(output, number)
            faulthandler.enable(file=2)  # not where the parent prints
            for number in (output, *others, *self._descriptors()):
                os.close(number)
            self.work(job, pipes)
            code = 0
        except BaseException:  # noqa: BLE001  # nothing may come back into the loop of the parent
            os.write(2, traceback.format_exc().encode(errors="replace"))
        finally:
            flush_streams()
            os._exit(code)

    def _descriptors(self) -> list[int]:
        pipes: list[int] = [self.stream.fileno()]
        for child in self.children.values():
            pipes += (child.answer, child.output, child.stacks, child.handle)
        return pipes


def flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def serve(descriptor: int, work: ChildWork) -> None:
    """Fork for the explorer until it closes the socket, and end the process."""
    code = 1
    try:
        with socket.socket(fileno=descriptor) as stream:
            ForkServer(stream, work).serve()
        code = 0
    except Exception:  # noqa: BLE001  # nothing behind this may run: it is no end of pytest
        traceback.print_exc()
    finally:
        flush_streams()
        os._exit(code)
