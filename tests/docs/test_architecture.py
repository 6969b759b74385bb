"""What pages and docstrings say of the code is there, and each word of the glossary is explained once."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from kproxy.protocol.table.api_keys import METADATA
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.frames import produce

ROOT = Path(__file__).parents[2]
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
FILE_NAMES = {path.name for folder in ("kproxy", "tests", "docs") for path in (ROOT / folder).rglob("*.py")}


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
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition(f"<!-- {mark} -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| `([\w/]+\.py)` \| `(\w+)` \|", table, re.MULTILINE)
    talk = Dialogue(f"rules: [{{name: r, {rule}}}]", advertise=True)
    if act is answer_metadata:
        talk.client(request(METADATA, 9, 1, topics=[{"name": "orders"}]))
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls.append((frame.f_code.co_filename.rpartition("/kproxy/")[2], frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act(talk)
    finally:
        sys.setprofile(before)

    assert len(rows) > 8
    position = 0
    for file, name in rows:
        assert f"def {name}(" in (ROOT / "kproxy" / file).read_text()
        if not file.startswith("runtime/"):
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
