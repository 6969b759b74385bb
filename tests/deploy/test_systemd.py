"""The unit in deploy/systemd is one that systemd accepts, and as locked up as it can be."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools("systemd-analyze")
UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "kproxy.service"
MOST_EXPOSURE = 2.5
"""Of 10; systemd's own word for less than 2.5 is "OK"."""


def analyze(*words: str) -> str:
    path = shutil.which("systemd-analyze")
    assert path, "no systemd-analyze found, tests of the unit need it (Debian: apt-get install systemd)"
    done = subprocess.run([path, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_accepts_the_unit() -> None:
    """Without a word about a setting that it does not know."""
    said = analyze("verify", "--man=no", str(UNIT))
    assert "kproxy.service" not in said, said


def test_the_unit_names_no_manual_page() -> None:
    """There is none: `systemctl help kproxy` would say so to whoever looks for help."""
    assert "man:" not in UNIT.read_text()


def test_unit_working_directory_is_not_writable() -> None:
    """The state directory is the only folder that the service writes."""
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    assert settings["ProtectSystem"] == "strict"
    assert settings["WorkingDirectory"] == "/etc/kproxy"
    assert settings["StateDirectory"] == "kproxy"
    assert "Environment=PYTHONSAFEPATH=1" in UNIT.read_text().splitlines()


def test_the_unit_is_locked_up() -> None:
    said = analyze("security", "--offline=yes", str(UNIT))
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert found
    assert float(found[1]) <= MOST_EXPOSURE, said
