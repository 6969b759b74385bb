"""`kproxy demo` shows what it says, and ends by itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from kproxy.testing import ask
from kproxy.testing.process import Child

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

        assert ask.topics(address[1]) == {"orders": 3}
        demo.signal(signal.SIGTERM)
        assert demo.wait(20) == 0


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
