"""`kproxy demo` shows what it says, and ends by itself."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from kproxy.cli.demo import commands_to_try, own_command
from kproxy.testing import one_request
from kproxy.testing.process import Child

pytestmark = pytest.mark.process
DEMO = [sys.executable, "-m", "kproxy", "demo", "--records", "300"]


def test_the_demo_delivers_every_record_and_ends_with_0() -> None:
    """Names and addresses of both sides are shown, all records arrive, it exits with 0, and a pipe gets plain text."""
    done = subprocess.run(DEMO, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert re.search(r"brokers +prod\.orders", done.stdout)
    assert re.search(r"clients +orders", done.stdout)
    assert "300 of 300 records delivered" in done.stdout
    assert "2 of 3 tries were answered by kproxy in the broker's place" in done.stdout
    assert "No client was told the address of a broker" in done.stdout
    rows = re.findall(r"^ +(\d) +(127\.0\.0\.1:\d+) +(127\.0\.0\.1:\d+)", done.stdout, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert len({address for row in rows for address in row[1:]}) == 6


def test_keep_stays_up_at_the_address_it_prints(tmp_path: Path) -> None:
    """With --keep the proxy serves other clients at the printed address until SIGTERM, and then the exit code is 0."""
    with Child([*DEMO, "--keep"], tmp_path / "log", env={"COLUMNS": "200"}) as demo:
        demo.wait_until(lambda: "Ctrl-C ends it." in demo.tail(), 60, "the demo")
        address = re.search(r"Bootstrap address: ([\d.:]+)", demo.tail())
        assert address

        assert one_request.topics(address[1]) == {"orders": 3}
        admin = re.search(r"http://([\d.:]+)/view/", demo.tail())
        assert admin
        with urllib.request.urlopen(f"http://{admin[1]}/api/captures") as answer:
            folder = Path(json.load(answer)["folder"])  # the Captures tab of the page offers to start one
        for command in printed_commands(demo.tail()):
            run_command(command)
        assert (folder / "demo.pcapng").exists()
        demo.signal(signal.SIGTERM)
        assert demo.wait(60) == 0
        assert not folder.exists()


def printed_commands(text: str) -> list[list[str]]:
    """Return the commands that the demo prints, in their order."""
    found = [shlex.split(line[18:]) for line in text.splitlines() if re.search(r" (--admin|[^ ]+\.pcapng)", line)]
    assert [words[words.index("kproxy") + 1] for words in found] == ["view", "capture", "tail", "show", "rules"]
    return found


def run_command(words: list[str]) -> None:
    """Run a command to its end, in a terminal if it needs one. It prints something and exits with 0."""
    if "view" in words:
        near, far = os.openpty()
        termios.tcsetwinsize(far, (40, 160))
        environment = {**os.environ, "TERM": "xterm-256color"}
        with subprocess.Popen(words, stdin=far, stdout=far, stderr=far, env=environment) as viewer:
            os.close(far)
            for shown, key in ((b"orders", b"q"), (b"leave?", b"y")):
                seen = b""
                while shown not in seen:
                    seen += os.read(near, 65536)
                os.write(near, key)
            with suppress(OSError):  # EIO: the other end is closed
                while os.read(near, 65536):
                    pass
            assert viewer.wait(60) == 0
        os.close(near)
        return
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, (words, done.stderr)
    assert done.stdout, words


@pytest.mark.parametrize(("found", "expected"), [("", True), (sys.executable, False)])
def test_own_command_is_on_path_or_complete(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: str, expected: bool
) -> None:
    """`kproxy` alone only if PATH leads to the environment that runs the demo."""
    file = tmp_path / "kproxy"
    file.write_text("")
    there = Path(found).parent / "kproxy" if found else file
    monkeypatch.setattr(shutil, "which", lambda name: str(there))
    complete = f"{shlex.quote(sys.executable)} -m kproxy"
    assert own_command() == (complete if expected else "kproxy")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert own_command() == complete
    monkeypatch.setattr(sys, "argv", ["dist/kproxy of linux.pyz", "demo"])
    assert own_command() == f"{shlex.quote(sys.executable)} 'dist/kproxy of linux.pyz'"


def test_commands_without_textual_use_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.cli.demo.find_spec", lambda name: None)
    first, *_ = commands_to_try("127.0.0.1:1", Path("there"))
    assert first[1].endswith("kproxy tail --admin http://127.0.0.1:1")


def test_a_missing_package_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    """Without confluent-kafka the demo says what to install, in one line, and exits with 1."""
    hide = "import sys; sys.modules['confluent_kafka'] = None; sys.argv = ['kproxy', 'demo'];"
    code = hide + "from kproxy.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, env=dict(os.environ)
    )

    assert done.returncode == 1
    assert done.stderr.startswith("kproxy: confluent-kafka is not installed: pip install '.[demo]' in a checkout")
    assert done.stderr.count("\n") == 1
