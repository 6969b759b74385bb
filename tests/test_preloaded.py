"""A proxy that was forked (preloaded.py) is as one that was started from nothing."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from kproxy.testing import process
from kproxy.testing.process import Child, Proxy
from tests.support.fake_broker import FakeBroker
from tests.support.wait import until

from .preloaded import Forked, Forks

pytestmark = pytest.mark.process
STATES = ("SigBlk", "SigIgn", "SigCgt", "Umask", "Uid", "CapEff", "NoNewPrivs")


@pytest.fixture
def forks() -> Any:
    made = Forks()
    yield made
    made.close()


def open_files(folder: Path) -> dict[int, str]:
    """Return what the files in `/proc/PID/fd` are by their numbers, but for those closed while it is read."""
    files = {}
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            files[int(file.name)] = re.sub(r":\[\d+\]|\d+", "", os.readlink(file))
    return files


def seen(proxy: Proxy) -> dict[str, Any]:
    """What the kernel says of it that could be another's; not its connections, which come and go."""
    place = Path(f"/proc/{proxy.pid}")
    status = (place / "status").read_text()
    files = open_files(place / "fd")
    return {
        **{name: re.findall(rf"^{name}:\s+(.*)$", status, re.MULTILINE) for name in STATES},
        "open": sorted(name.replace("/log", "").rpartition("/")[2][:9] for name in files.values() if name != "socket"),
        "numbers": sorted(files)[:3],
        "folder": Path(os.readlink(place / "cwd")).parent,
        "group": os.getpgid(proxy.pid),
        "session": os.getsid(proxy.pid),
    }


@pytest.mark.deep
def test_it_has_the_same_signals_files_and_folder(forks: Forks, monkeypatch: pytest.MonkeyPatch) -> None:
    """And ends with the same code, and the same lines."""
    found = []
    for begin in (process_begin(), forks.start):
        monkeypatch.setattr(process, "begin", begin)
        with FakeBroker() as broker, Proxy(broker.address) as proxy:
            assert proxy.child is not None
            facts = seen(proxy)
            proxy.child.signal(signal.SIGTERM)
            facts["code"] = proxy.child.wait(60)
            facts["lines"] = {json.loads(line)["event"] for line in proxy.logs(100).splitlines()}
            found.append(facts)

    assert found[0] == found[1]


def process_begin() -> Any:
    """As it is without this."""
    spec = importlib.util.find_spec("kproxy.testing.process")
    assert spec is not None and spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    return fresh.begin


def test_its_end_is_told(forks: Forks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By a code, by a signal; what it wrote is in the log; its environment is the one that it was given."""
    monkeypatch.setattr(process, "begin", forks.start)
    command = [sys.executable, "-m", "kproxy", "run", "--config"]
    (tmp_path / "config.yaml").write_text("clusters: ${KPROXY_CLUSTERS}\n")
    wrong = Child([*command, "config.yaml"], tmp_path / "log", cwd=tmp_path, env={"KPROXY_CLUSTERS": "given-here"})
    assert isinstance(wrong._process, Forked)
    assert wrong.wait(60) == 1
    assert "the value of ${KPROXY_CLUSTERS} cannot be used here" in wrong.tail()  # not: is not set
    with FakeBroker() as broker, Proxy(broker.address) as proxy:
        assert proxy.child is not None
        assert proxy.child.returncode is None
        os.kill(proxy.pid, signal.SIGKILL)
        until(lambda: proxy.child is not None and proxy.child.returncode == -signal.SIGKILL)


def test_nothing_is_left_when_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was forked does not outlive the process that forks."""
    forks = Forks()
    monkeypatch.setattr(process, "begin", forks.start)
    with FakeBroker() as broker:
        proxy = Proxy(broker.address)
        proxy.start()
        forks.close()
        until(lambda: not Path(f"/proc/{proxy.pid}").exists())


def test_another_environment_needs_a_start_from_nothing(forks: Forks) -> None:
    """Where modules are found, for one, is decided before kproxy begins."""
    command, env = [sys.executable, "-m", "kproxy", "run"], dict(os.environ)

    assert forks.can(command, env | {"KPROXY_X": "1", "PYTEST_CURRENT_TEST": "another"})
    assert not forks.can(command, env | {"PYTHONPATH": "/somewhere"})
    assert not forks.can(command, {name: env[name] for name in env if name != "PATH"})
    assert not forks.can([*command[:3], "demo"], env)
