"""Process that forks a child for each run, kills it when it hangs, and tells the explorer how it has ended.

Strategy. This process has imported everything and never starts a thread, so that its children begin in milliseconds
and whole. It is told jobs over a socket and has all pipes of its children in one loop: nobody who says too much, or
too little, holds up the others. It ends with the socket, and its children with it. Each child leads a group of
processes, which is killed at its end, whatever the run has left there. What has left the group, as daemons do, becomes
a child of the run's process, and at the end of that one of this process: whoever is here that was not forked here is
such a stray, and is killed.
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

from kproxy.explore.model import loads
from kproxy.system.processes import adopt_orphans, die_with_parent
from kproxy.testing.process import children_of, process_tree

from .child import ChildPipes
from .messages import EndedChild, MessageBuffer, RunJob, ServerOrder, ServerReport, packed

GRACE = 5.0
"""Seconds between the limit of a run, at which its own watchdog ends it, and its death by force."""
PAUSE = 0.5
"""Seconds between two looks at the clock, while nothing is heard of children."""
MOST_ANSWER = 32 << 20
OUTPUT_KEPT = 16 << 10
"""Bytes of what a child prints that are kept: the last ones."""
STACKS_KEPT = 64 << 10
CHUNK = 1 << 16
SHORT = 0.05
"""Seconds between two looks at strays, which have to die."""

ChildWork = Callable[[RunJob, ChildPipes], None]


class ForkedChild:
    """Child as the process that forks it sees it, with the ends of its pipes."""

    def __init__(self, job: RunJob, pid: int, answer: int, output: int, stacks: int) -> None:
        self.job, self.pid, self.answer, self.output, self.stacks = job, pid, answer, output, stacks
        self.began = monotonic()
        self.until = self.began + job.limit + GRACE
        self.said, self.printed = bytearray(), bytearray()
        self.late = self.flooded = False
        self.open = {answer, output}
        self.handle = os.pidfd_open(pid)  # can be read once the child has ended

    def read(self, descriptor: int) -> None:
        """Take what the child says or prints, of which only the last is kept; kill it if it says too much."""
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
        """Return True if the process is over; it stays known until `report`."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def report(self) -> EndedChild:
        """Return how the child has ended, which must be so. What it has left in its group is killed."""
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
    """Loop over the explorer's socket and all children; `work` is done in each child, whose answer it writes."""

    def __init__(self, stream: socket.socket, work: ChildWork) -> None:
        self.stream, self.work = stream, work
        self.children: dict[int, ForkedChild] = {}
        self.coming, self.going = MessageBuffer(), bytearray()
        self.strays = False  # there may be what ended runs have left

    def serve(self) -> None:
        """Fork for each job, until the explorer closes the socket."""
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
        """Kill what ended runs have left in groups of their own. Return True if there was any: as they die, what they
        have started comes here, too."""
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
        """Take in what has come, and look at the children. Return False once the explorer has gone."""
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

    # ---- children

    def _begin(self, job: RunJob) -> None:
        """Fork a child for a job, or report why that cannot be."""
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
        """Do the work, and end the process."""
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
    """Write what is buffered for standard output and standard error, so that it is written once."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def serve(descriptor: int, work: ChildWork) -> None:
    """Fork for the explorer that holds the other end of this socket, until it closes it, and end the process."""
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
