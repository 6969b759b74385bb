"""Runs a how-to page as its reader does: files are written, commands are run in order, and what they print is compared.

A block of YAML or Python whose first line is `# name` is that file. In a block of `console`, `$ ` begins a command and
`> ` goes on with it; below it stands what it prints, where … is anything and blanks are alike. A command that ends with
` &` stays until the page is over, and the next one waits until kproxy can serve. The page's addresses become free ones.
A comment `<!-- example: NAME -->` begins a part of a page that runs on its own, up to the next such comment.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import Child, free_port, free_port_with_room

DOCS = Path(__file__).parent.parent / "docs"
BROKERS, PROXY, ADMIN, COLLECTOR = "broker1:9092", "127.0.0.1:9092", "127.0.0.1:9190", '127.0.0.1", 4318'
OTHER = "127.0.0.1:9392"
"""As the pages say them."""


@dataclass
class Example:
    """A command, and what the page shows below it."""

    command: str
    expected: str


def blocks(page: str, part: str = "") -> Iterator[tuple[str, str]]:
    """(language, text) of each, in the order of the page or of one of its examples."""
    text = (DOCS / page).read_text()
    if part:
        text = text.split(f"<!-- example: {part} -->\n")[1].partition("<!-- example: ")[0]
    yield from re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def examples(text: str) -> Iterator[Example]:
    """Those of one block."""
    for one in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command = re.match(r".*\n(?:> .*\n)*", one)
        assert command is not None
        yield Example(re.sub(r"^> ", "", command[0], flags=re.MULTILINE).rstrip("\n"), one[command.end() :])


class Reader:
    """Works through pages in `folder`, on a mock cluster. `limit`: seconds that a command may take."""

    limit = 60

    def __init__(self, folder: Path, cluster: MockCluster, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.admin = f"127.0.0.1:{free_port()}"
        self.real = {BROKERS: cluster.bootstrap, PROXY: f"127.0.0.1:{free_port_with_room(16)}", ADMIN: self.admin,
                     OTHER: f"127.0.0.1:{free_port_with_room(16)}"}  # fmt: skip
        collector = free_port()
        self.real |= {COLLECTOR: f'127.0.0.1", {collector}', "127.0.0.1:4318": f"127.0.0.1:{collector}"}
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "KPROXY_ADMIN": f"http://{self.admin}",
            "COLUMNS": "200",
            "PYTHONWARNINGS": "ignore",  # of pytest plugins that users may not have
        }

    def work_through(self, page: str, part: str = "") -> int:
        """All of it, or one of its examples; how many commands were run."""
        count = 0
        for language, text in blocks(page, part):
            if language in {"yaml", "python"} and (name := re.match(r"# ([\w./-]+)\n", text)):
                file = self.folder / name[1]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self.really(text))
            elif language == "console":
                for example in examples(text):
                    self.run(example)
                    count += 1
        return count

    def really(self, text: str) -> str:
        """With addresses that are free here."""
        for said, real in self.real.items():
            text = text.replace(said, real)
        return text

    def run(self, example: Example) -> None:
        """One command."""
        command = self.really(example.command)
        if command.endswith(" &"):
            words = ["bash", "-c", f"exec {command.removesuffix(' &')}"]
            log = self.folder / "kproxy.log"
            child = self.stack.enter_context(Child(words, log, env=self.environment, cwd=self.folder))
            child.wait_until(self.is_ready, 60, command)
            return
        ran = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=self.limit, check=False,
        )  # fmt: skip
        printed = ran.stdout
        for said, real in self.real.items():
            printed = printed.replace(real, said)
        pattern = ".*".join(re.escape(" ".join(part.split())) for part in example.expected.split("…"))
        assert re.fullmatch(pattern, " ".join(printed.split())), f"{example.command}\n{printed}"

    def is_ready(self) -> bool:
        """Whether kproxy can serve clients."""
        try:
            with urllib.request.urlopen(f"http://{self.admin}/readyz", timeout=60) as answer:
                return bool(answer.status == 200)
        except (urllib.error.HTTPError, OSError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            return False
