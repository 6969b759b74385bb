"""What pages and docstrings say of the code is there, and each word of the glossary is explained once."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest
import structlog

from kproxy.protocol.framing import framed
from kproxy.protocol.table.api_keys import HEARTBEAT, METADATA
from kproxy.record.audit.audit_sink import AuditSink
from kproxy.record.audit.config import AuditConfig
from kproxy.record.audit.event_sink import EventGate
from kproxy.record.audit.outlets import make_recorder
from kproxy.record.fanout import Fanout
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.exchange_factory import Somebody
from tests.support.frames import message, produce

ROOT = Path(__file__).parents[2]
HEARTBEATS = {"request": {"group_id": "g", "generation_id": 1, "member_id": "m"}, "response": {"error_code": 0}}
FOLDERS = (ROOT, ROOT / "kproxy", ROOT / "tests")
PAGES = (
    ROOT / "ARCHITECTURE.md",
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
    ROOT / "CONTRIBUTING.md",
)
FILES = re.compile(r"(?<![\w/.-])((?:\w[\w-]*/)+\w[\w-]*\.(?:py|yaml|md|toml)|(?:\w[\w-]*/){2,})(?![\w/*-])")


MODULES = sorted((ROOT / "kproxy").rglob("*.py"))
MODULE = re.compile(r"(?<![\w./])((?:\w+/)*\w+\.py)\b")
DOTTED = re.compile(r"`(?:kproxy\.)?([a-z_]+(?:\.[A-Za-z_]+)+)`")
TOP = {path.stem for path in (ROOT / "kproxy").iterdir() if path.name[0] != "_"}
FILE_NAMES = {path.name for folder in ("kproxy", "tests", "docs") for path in (ROOT / folder).rglob("*.py")} | {
    path.name for path in ROOT.glob("*.py")
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    """Below the repository, `kproxy/` or `tests/`. Code on a page may make files that are not there yet."""
    text = re.sub(r"\]\([^)]*\)|^```.*?^```$", "]", page.read_text(), flags=re.MULTILINE | re.DOTALL)

    for name in FILES.findall(text):
        assert any((folder / name).exists() for folder in FOLDERS), f"{page.name} names {name}"
    for name in MODULE.findall(text):
        assert "/" in name or name in FILE_NAMES, f"{page.name} names {name}"


def test_modules_that_docstrings_name_are_there() -> None:
    """A bare file name is one of any folder; a path begins below the repository or `kproxy/`, or beside the module."""
    lost = []
    for path in MODULES:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            dotted = [name for name in DOTTED.findall(line) if not is_there(name.split("."))]
            files = [
                name
                for name in MODULE.findall(line)
                if not (
                    any((folder / name).exists() for folder in (*FOLDERS, path.parent))
                    if "/" in name
                    else name in FILE_NAMES
                )
            ]
            lost += [f"{path.relative_to(ROOT)}:{number}: {name}" for name in dotted + files]
    assert lost == []


def is_there(names: list[str]) -> bool:
    """Return True if a dotted name begins with no package of kproxy, or leads to a module, or to a name in one."""
    folder = ROOT / "kproxy"
    if names[0] not in TOP or names[-1] in {"py", "yaml", "md", "json"}:
        return True
    if not any((folder / names[0] / name).exists() for name in (names[1], f"{names[1]}.py")):
        return True  # an attribute: `session.sent`
    for at, name in enumerate(names):
        if (folder / name).is_dir():
            folder /= name
            continue
        module = folder / f"{name}.py"
        rest = names[at + 1 :] if module.exists() else names[at:]
        text = (module if module.exists() else folder / "__init__.py").read_text()
        return not rest or re.search(rf"\b{rest[0]}\b", text) is not None
    return True


def test_every_package_is_in_the_table_of_packages() -> None:
    """A folder of `kproxy/` with modules has its row, and each row its folder or module."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("| package | contents |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([^`]+)`", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line)))
    packages = {path.parent.name for path in (ROOT / "kproxy").glob("*/__init__.py")}

    assert packages <= named
    assert all((ROOT / "kproxy" / name).exists() for name in named)


def send_produce(talk: Dialogue) -> None:
    talk.client(produce(1, "orders"))


def answer_metadata(talk: Dialogue) -> None:
    topic = {"error_code": 0, "name": "prod.orders", "is_internal": False, "partitions": []}
    broker = {"node_id": 1, "host": "broker", "port": 9092}
    talk.broker(response(METADATA, 9, 1, brokers=[broker], controller_id=1, topics=[topic]))


@pytest.mark.parametrize(
    ("mark", "rule", "act"),
    [
        ("one frame", "kind: error, match: {api: Produce, topic: orders}, error: NOT_LEADER_OR_FOLLOWER", send_produce),
        ("one response", "kind: rename_topic, topics: {orders: prod.orders}", answer_metadata),
    ],
)
def test_session_calls_functions_in_the_order_of_table(mark: str, rule: str, act: Callable[[Dialogue], None]) -> None:
    """A session calls all functions of the table except those of the sockets."""
    talk = Dialogue(f"rules: [{{name: r, {rule}}}]", advertise=True)
    if act is answer_metadata:
        talk.client(request(METADATA, 9, 1, topics=[{"name": "orders"}]))
    with noted_calls() as calls:
        act(talk)
    check_table(mark, calls, "runtime/")


def test_audit_calls_functions_in_the_order_of_table(tmp_path: Path) -> None:
    """An observer, the audit and its threads call all functions of the table except those of the tap and of Spark."""
    who: Any = Somebody()
    fanout = Fanout(structlog.get_logger())
    config = AuditConfig(dir=str(tmp_path), level="requests")
    with noted_calls() as calls:
        recorder = make_recorder(config, f"proxy/{uuid4()}/0", structlog.get_logger())
        recorder.start()
        sink = AuditSink(config, EventGate(recorder, lambda: None), lambda seconds: 1e9 + seconds)
        fanout.add(sink)
        sink.account(who)
        observer = ConnectionObserver(who, fanout.depth, fanout.take)
        for correlation in range(2):
            for direction, take in (("request", observer.from_client), ("response", observer.to_client)):
                data = framed(message(HEARTBEAT, 4, direction, HEARTBEATS[direction], correlation))
                take(data, len(data), correlation)
        assert recorder.close(60.0)

    check_table("one event", calls, "runtime/", "lake/")


Calls = list[tuple[str, str]]


@contextmanager
def noted_calls() -> Iterator[Calls]:
    """Collect (file, qualified name) of the functions that this thread and new threads call."""
    calls: Calls = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls.append((frame.f_code.co_filename.rpartition("/kproxy/")[2], frame.f_code.co_qualname))

    before, before_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(before_threads)


def check_table(mark: str, calls: Calls, *not_called: str) -> None:
    """Check that the table's functions exist, and that those outside of the folders `not_called` follow each other."""
    table = (ROOT / "ARCHITECTURE.md").read_text().partition(f"<!-- {mark} -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", table, re.MULTILINE)
    assert len(rows) > 8
    position = 0
    for file, name in rows:
        text = (ROOT / "kproxy" / file).read_text()
        of_class, _, function = name.rpartition(".")
        assert f"def {function}(" in text
        assert not of_class or re.search(rf"^class {of_class}\b", text, re.MULTILINE), f"{file} has no {of_class}"
        if not file.startswith(not_called):
            assert (file, name) in calls[position:], f"{file} {name} is not called, or earlier"
            position = calls.index((file, name), position)


def test_the_glossary_explains_each_word_once() -> None:
    """A row of several words explains them in their order."""
    glossary = (ROOT / "ARCHITECTURE.md").read_text().partition("## Glossary")[2]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", glossary, re.MULTILINE)[1:]
    words = [word for row, _ in rows for word in row.split(", ")]

    assert 20 <= len(words) <= 40
    assert glossary.rstrip().endswith(" |")  # nothing follows it: decisions are files of docs/decisions
    assert sorted(words) == sorted(set(words))
    for row, means in rows:
        count = len(row.split(", "))
        assert count == 1 or means.count(";") in {0, count - 1}, row
