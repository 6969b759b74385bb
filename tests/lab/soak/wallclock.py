"""The wall clock of kproxy's processes, which can jump: see wallclock.c. Where there is no C compiler, it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).parent / "wallclock.c"


class WallClockOfOthers:
    """For processes that are started inside `with clock.preloaded()`. `works` is false without a compiler."""

    def __init__(self, folder: Path) -> None:
        self.file, self.library = folder / "clock", folder / "wallclock.so"
        self.file.write_bytes(bytes(8))
        compiler = shutil.which("cc")
        command = [compiler or "", "-O1", "-shared", "-fPIC", "-o", str(self.library), str(SOURCE), "-ldl"]
        self.works = bool(compiler) and subprocess.run(command, capture_output=True, check=False).returncode == 0

    def jump(self, seconds: float) -> None:
        """So many seconds later than it really is, or earlier."""
        with self.file.open("r+b") as file:
            file.write(int(seconds * 1e9).to_bytes(8, "little", signed=True))

    @contextmanager
    def preloaded(self) -> Iterator[None]:
        """What is started in here, and its children, have this clock."""
        ours = {"LD_PRELOAD": str(self.library), "SOAK_CLOCK": str(self.file)} if self.works else {}
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value
