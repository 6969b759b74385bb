"""A small Java program next to a test, that has Kafka's jars and answers JSON lines.

Strategy: starting a JVM costs more than most tests, so one program is started and asked many things: a request is one
line `{"id": 1, "do": …}` on its standard input, its answer one line with the same id, `ok` or `error`, in any order.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kproxy.base.errors import InternalError
from kproxy.base.jars import java
from kproxy.testing.kafka import archive_options
from tests.support.java_jars import javac

JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")


COMPILER = ("-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1", "-nowarn", "-proc:none")
"""Options of javac, with which it takes half of the processor's time for a few short files: it starts no threads of its
own."""


class JavaError(InternalError):
    """An exception of the Java program; the message is its stack trace."""


def compile_java(sources: Sequence[Path], libs: Path, target: Path) -> None:
    """Compile Java files against the jars in `libs`, into the folder `target`. Raises InternalError with javac's
    words."""
    command = [javac(), *COMPILER, "-d", str(target), "-cp", f"{libs}/*", *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InternalError(f"javac exit code {done.returncode}:\n{done.stderr[-4000:]}")


class JavaProgram:
    """The compiled and running program with the main class `main`, from the folder `sources`; a context manager."""

    def __init__(self, sources: Path, main: str, libs: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kproxy-java-")
        classes = Path(self._folder.name)
        compile_java(sorted(sources.glob("*.java")), libs, classes)
        self.log = classes / "log"
        with self.log.open("wb") as errors:
            self._process = subprocess.Popen(
                [java(), *archive_options(libs), *JVM, "-cp", f"{libs}/*:{classes}", main],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._ids = itertools.count()
        self._waiting: dict[int, Future[Any]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Return the process id of the JVM."""
        return self._process.pid

    def start(self, do: str, **request: Any) -> Future[Any]:
        """Ask the program to do something. Return its answer as a future."""
        number = next(self._ids)
        answer = self._waiting[number] = Future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "do": do, **request}) + "\n")
        self._process.stdin.flush()
        return answer

    def __call__(self, do: str, *, timeout: float = 90, **request: Any) -> Any:
        """Ask the program to do something and wait. Raises JavaError with the stack trace, TimeoutError after `timeout`
        seconds."""
        return self.start(do, **request).result(timeout)

    def close(self) -> None:
        """End the program, which exits when its standard input ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reply = json.loads(line)
            waiting = self._waiting.pop(reply["id"])
            if "error" in reply:
                waiting.set_exception(JavaError(reply["error"]))
            else:
                waiting.set_result(reply["ok"])
        for waiting in self._waiting.values():
            waiting.set_exception(InternalError(f"the program ended:\n{self.log.read_text()[-2000:]}"))
