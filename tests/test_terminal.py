"""What people read: no byte of others' names gives a terminal an order, whatever command prints it."""

from __future__ import annotations

import ast
import io
import json
import re
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

import click
import pytest
from click.testing import CliRunner
from pydantic import BaseModel

import kproxy
from kproxy.admin import models, process
from kproxy.admin.captures import CaptureShown, CapturesShown
from kproxy.admin.process import ConfigChangeShown, ConfigShown
from kproxy.base import terminal
from kproxy.base.errors import plural
from kproxy.base.logs import make_log
from kproxy.cli import main
from kproxy.protocol.records import Record, encode_batch
from tests.support.exchange_factory import Somebody, conversation, event_lines, exchange, write_capture
from tests.support.terminal_output import on_a_terminal

pytestmark = pytest.mark.process
HOSTILE = "a\x1b[2J\x1b]0;t\x07\x9b31m\x85\u202eb\u2066\u200b\ufeff\u2028\U000e0041\x7f\r[red]c[link=x]"
"""An escape that clears a screen, one that names a window, a bell; C1 controls; letters that turn the direction, have
no width, end a line, or are tags; and what rich takes for markup."""
SOURCE = Path(kproxy.__file__).parent
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def orders(text: str) -> set[str]:
    """What is in a text and must not be, by names of categories that this test takes from Python's own table."""
    return {f"U+{ord(one):04X}" for one in text if unicodedata.category(one) in UNSEEN and one not in "\n\t"}


# ---- the function


def test_every_letter_of_unicode() -> None:
    """None of the categories that are not to be seen gets through; all else does, and once is enough."""
    for number in range(0x110000):
        one = chr(number)
        made = terminal.printable(one)
        if unicodedata.category(one) in UNSEEN and one not in "\n\t":
            assert made != one, hex(number)
        if made != one:
            assert made.isascii() and terminal.printable(made) == made
            assert one.encode("utf-16", "surrogatepass") == json.loads(f'"{made}"').encode("utf-16", "surrogatepass")
        if unicodedata.category(one)[0] in "LNPS" and one not in "\u115f\u1160\u3164\uffa0":
            assert made == one, hex(number)


def test_json_stays_what_it_was() -> None:
    """Whatever it holds."""
    said = {HOSTILE: [HOSTILE, {"x": HOSTILE}], "é": "ü"}
    made = terminal.printable(json.dumps(said, ensure_ascii=False))
    assert json.loads(made) == said and "é" in made and not orders(made)


def test_in_one_line() -> None:
    """Nobody forges lines or columns."""
    assert terminal.in_line("a\nb\tc") == "a\\u000ab\\u0009c"


# ---- where it is used


PAST = {"print", "click.echo", "click.secho", "click.echo_via_pager", "Console", "sys.stdout.write"}


def test_all_output_goes_through_it() -> None:
    """No command prints past it, and no console of rich's is made elsewhere."""
    paths = [*(SOURCE / "cli").rglob("*.py"), *(SOURCE / "lake").rglob("*.py")]
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PAST
    ]
    assert [one for one in found if not one.startswith("lake/connector.py")] == []  # paths of jars, for Spark


def test_the_log() -> None:
    """For people in one line; as JSON in ASCII."""
    for form in ("human", "json"):
        stream = io.StringIO()
        log = make_log(form, "info", stream)
        log.warning(HOSTILE, name=HOSTILE, many=[HOSTILE], key={HOSTILE: HOSTILE})
        text = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
        assert not orders(text) and text.count("\n") == 1


# ---- every command


@pytest.fixture(scope="module")
def admin() -> Iterator[str]:
    """An admin address whose every answer is hostile: by shape where there is one, else an error."""

    class Answers(BaseHTTPRequestHandler):
        def do(self) -> None:
            path = self.path.partition("?")[0]
            path = "/api/captures/" if path.startswith("/api/captures/") else path
            found = SHAPES.get((self.command, path))
            body = json.dumps(found if found is not None else ERROR).encode()
            self.send_response(200 if found is not None else 503 if "readyz" in path else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Nothing."""

    for method in ("GET", "POST", "PUT", "DELETE"):
        setattr(Answers, f"do_{method}", Answers.do)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


ERROR = {"error": {"code": HOSTILE, "message": HOSTILE, "details": [{"where": HOSTILE, "message": HOSTILE}]},
         "ready": False, "waiting_for": [HOSTILE], "clusters": {HOSTILE: {"waiting_for": [HOSTILE]}}}  # fmt: skip


def filled(kind: Any) -> Any:
    """A value of this type with hostile text wherever there is text."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: filled(field.annotation) for name, field in kind.model_fields.items()}
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (list, tuple, Sequence):
        return [filled(inner[0])]
    if origin is dict:
        return {HOSTILE: filled(inner[1])}
    if origin is Literal:
        return inner[-1]
    if inner:
        return filled(next(one for one in inner if one is not type(None)))
    return {int: 1, float: 1.0, bool: True}.get(kind, HOSTILE)


SHAPES: dict[tuple[str, str], Any] = {
    ("GET", "/api/rules"): filled(models.RulesShown),
    ("GET", "/api/connections"): filled(process.ConnectionsShown),
    ("GET", "/api/captures"): filled(CapturesShown),
    ("POST", "/api/captures"): filled(CaptureShown),
    ("GET", "/api/captures/"): filled(CaptureShown),
    ("GET", "/api/config"): {**filled(ConfigShown), "config": {
        "clusters": {HOSTILE: {"bootstrap": [HOSTILE]}},
        "listeners": [{"name": HOSTILE, "bind": HOSTILE, "cluster": HOSTILE}],
    }},
    ("POST", "/api/config/check"): filled(ConfigChangeShown),
    ("POST", "/api/config"): filled(ConfigChangeShown),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of all kinds with hostile names in every field; their own names are, too."""
    who = Somebody(
        client_id=HOSTILE, principal=HOSTILE, software_name=HOSTILE, software_version=HOSTILE, cluster=HOSTILE,
        listener=HOSTILE, broker=HOSTILE, client_address=HOSTILE,
    )  # fmt: skip
    record = Record(0, 0, HOSTILE.encode(), HOSTILE.encode(), ((HOSTILE, HOSTILE.encode()), ("n", None)))
    batch = encode_batch([record])
    part = {"topic_data": [{"name": HOSTILE, "partition_data": [{"index": 0, "records": batch}]}]}
    said = {"responses": [{"name": HOSTILE, "partition_responses": [{"index": 0, "error_code": 3, "base_offset": 0}]}]}
    seen = [
        exchange("Produce", 8, {"acks": -1, "transactional_id": HOSTILE, **part}, said, who=who, number=1),
        exchange("Heartbeat", 3, {"group_id": HOSTILE, "generation_id": 1, "member_id": HOSTILE}, {"error_code": 0},
                 who=who, number=2),
    ]  # fmt: skip
    plain = Somebody(client_id=HOSTILE)
    for one in seen:
        one.rules.append(HOSTILE)
    kept = [exchange("Produce", 8, {"acks": -1, "transactional_id": HOSTILE, **part}, said, who=plain, number=1)]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.jsonl").write_bytes(event_lines(seen))
    write_capture(tmp_path / "c.pcapng", kept)
    write_capture(tmp_path / "plain.pcapng", conversation())
    name = HOSTILE.replace("\0", "").replace("/", "")
    quoted = json.dumps(HOSTILE, ensure_ascii=True)
    rules = f"rules: [{{name: {quoted}, kind: delay, match: {{topic: {quoted}}}, delay: 1s}}]"
    (tmp_path / "rules.yaml").write_text(rules)
    (tmp_path / f"{name}.yaml").write_text(rules)
    (tmp_path / "wrong.yaml").write_text(f"rules: [{{name: {quoted}, kind: {quoted}, {quoted}: {quoted}}}, {quoted}]")
    (tmp_path / "config.yaml").write_text(f"clusters: {{{quoted}: {quoted}}}\nlisteners: [{quoted}]\n{quoted}: 1\n")
    (tmp_path / "t.test.yaml").write_text(f"tests: [{{name: {quoted}, steps: [{{client: {{api: {quoted}}}}}]}}]")
    (tmp_path / "users").write_text(f"{HOSTILE}:x\n")
    (tmp_path / "frame").write_bytes(HOSTILE.encode())
    return tmp_path


NAME = HOSTILE.replace("/", "")
FILE = f"{NAME}.yaml"
TABLE: dict[str, list[list[str]]] = {
    "run": [["--config", "config.yaml"], ["--upstream", HOSTILE], ["--rules", FILE, "--config", "wrong.yaml"]],
    "check": [["."], ["-o", "github", "."], ["-o", "sarif", "."], [FILE], ["wrong.yaml"], ["config.yaml"], [HOSTILE]],
    "explain": [["rules.yaml", "Produce", "8"], ["rules.yaml", HOSTILE], ["wrong.yaml", "Produce", "8"]],
    "test": [["."], ["t.test.yaml"], ["-o", "junit", "."], [HOSTILE]],
    "rules kinds": [[], [HOSTILE]],
    "schema": [["rules"], [HOSTILE]],
    "ready": [[], ["--cluster", HOSTILE]],
    "rules list": [[], ["--json"]],
    "rules show": [[HOSTILE]], "rules add": [["rules.yaml"], ["wrong.yaml"]], "rules disable": [[HOSTILE]],
    "rules enable": [[HOSTILE]], "rules resume": [[HOSTILE]], "rules reset": [[HOSTILE]],
    "rules simulate": [[HOSTILE], ["c.pcapng", "--rules", HOSTILE]],
    "rules rm": [[HOSTILE]], "rules wait": [[HOSTILE, "1"]],
    "faults disable": [[]], "faults enable": [[]], "faults status": [[], ["--json"]],
    "config show": [[], ["--json"]], "config diff": [[], ["rules.yaml"], ["--json"]], "config apply": [[], ["--json"]],
    "connections list": [[], ["--json"]], "connections close": [["1"]], "connections recycle": [["1"]],
    "user list": [["users"]], "user remove": [["users", HOSTILE]], "user set": [["users", HOSTILE]],
    "tail": [["events.jsonl"], ["-o", "wide", "events.jsonl"], ["-o", "json", "events.jsonl"], ["c.pcapng"],
             [HOSTILE], ["c.pcapng", HOSTILE], []],
    "view": [[HOSTILE], ["c.pcapng", HOSTILE], ["-"]],  # what is on its screen: tests/cli/tui
    "show": [["c.pcapng", "1"], ["c.pcapng", "1", "-o", "json"], ["c.pcapng", HOSTILE], [HOSTILE, "1"]],
    "stats": [["c.pcapng"], ["events.jsonl"], ["-o", "json", "events.jsonl"], [HOSTILE]],
    "capture info": [["c.pcapng"], [FILE]], "capture list": [[]], "capture start": [["x.pcapng"], [HOSTILE]],
    "capture stop": [[HOSTILE]], "capture follow": [["x"], [HOSTILE]],
    "replay": [["c.pcapng", "--to", HOSTILE], ["c.pcapng", "--plan"], [HOSTILE]],
    "redact": [["c.pcapng", "out.pcapng"], [HOSTILE, HOSTILE]],
    "verify": [["c.pcapng"], ["-o", "json", "c.pcapng"], ["-o", "github", "c.pcapng"], ["--only", HOSTILE], [FILE],
               [HOSTILE]],
    "explore": [["--rules", "wrong.yaml", "--", "true"], ["--faults", HOSTILE, "--", "true"], [HOSTILE]],
    "help filters": [[], [HOSTILE]],
    "protocol": [[], [HOSTILE]],
    "decode": [["frame"], [HOSTILE], ["--hex", "frame"]],
    **{f"audit {name}": [[HOSTILE], ["--lake", HOSTILE, HOSTILE], [f"--{HOSTILE}"]]
       for name in ("run", "report", "completeness", "compact", "clean", "list")},
    "audit show": [[HOSTILE], ["traffic", "--lake", HOSTILE], ["traffic", "--where", f"{HOSTILE}=1"],
                   ["traffic", "--topic", "a"]],
    "completion": [["bash"], [HOSTILE]],
    "webhook": [["--cert", HOSTILE, "--image", "a"], ["--cert", "rules.yaml", "--image", HOSTILE],
                ["--cert", "rules.yaml", "--image", "a", "--listen", HOSTILE],
                ["--cert", "rules.yaml", "--image", "a", "--config-map", HOSTILE]],
    "mock": [[HOSTILE], ["--brokers", HOSTILE], ["--topic", HOSTILE], ["--topic", f"a:{HOSTILE}"]],
    "demo": [[HOSTILE], ["--records", HOSTILE]],
}  # fmt: skip


def commands(group: click.Group = main, before: str = "") -> Iterator[str]:
    """All that there are."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def test_the_table_has_every_command() -> None:
    """A new one is to be tested, too."""
    assert set(TABLE) == set(commands())


@pytest.mark.parametrize("name", TABLE)
def test_hostile_names(name: str, folder: Path, admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In arguments, options, files, answers of the admin address and records: nothing reaches either stream that is
    no letter."""
    monkeypatch.setenv("KPROXY_ADMIN", admin)
    told = 0
    for words in [*TABLE[name], [HOSTILE] * 4, [f"--{HOSTILE}"], [f"--{HOSTILE}={HOSTILE}"]]:
        if any("\0" in word for word in words):
            continue
        ran = CliRunner().invoke(main, [*name.split(), *words], input=HOSTILE)
        assert ran.exception is None or isinstance(ran.exception, SystemExit), (words, ran.exception)
        for text in (ran.stdout, ran.stderr):
            assert not orders(text), (words, text)
        told += "\\u001b" in ran.output or "\\x1b" in ran.output
    assert told, "none of them has shown a hostile name"


ON_A_TERMINAL = [
    ["tail", "events.jsonl"], ["tail", "-o", "json", "events.jsonl"], ["show", "c.pcapng", "1"], ["stats", "c.pcapng"],
    ["stats", "events.jsonl"], ["check", "."], ["explain", "rules.yaml", "Produce", "8"], ["test", "."],
    ["rules", "list"], ["connections", "list"], ["show", "c.pcapng", HOSTILE], ["capture", "info", "c.pcapng"],
]  # fmt: skip


@pytest.mark.parametrize("words", ON_A_TERMINAL, ids=lambda words: " ".join(words[:2]))
def test_on_a_terminal(words: list[str], folder: Path, admin: str) -> None:
    """Colours are kproxy's own; all else is as in a pipe. What rich takes for markup is text."""
    text = COLOUR.sub("", on_a_terminal(words, stderr=True, COLUMNS="400", KPROXY_ADMIN=admin))
    assert text and not orders(text), text


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_markup_is_text() -> None:
    """Of rich: in lines, in tables, with colours and without."""
    from rich.table import Table

    stream = io.StringIO()
    out = terminal.console()
    cast("Any", out).file, out.width = stream, 400
    table = Table("head")
    table.add_row(terminal.in_line(HOSTILE))
    out.print(HOSTILE)
    out.print(table)
    assert stream.getvalue().count("[red]c[link=x]") == 2 and not orders(stream.getvalue())


def test_the_page_of_a_report_escapes_names() -> None:
    """Its template is filled with names as text."""
    import jinja2

    source = (SOURCE / "lake" / "report" / "page.py").read_text()
    assert "autoescape=True" in source
    page = (SOURCE / "lake" / "report" / "page.html.j2").read_text()
    assert jinja2.Environment(autoescape=True).from_string("{{ x }}").render(x="<b>") == "&lt;b&gt;"
    for safe in re.findall(r"\{\{[^}]*\|\s*safe[^}]*\}\}", page):
        assert "name" not in safe, safe


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "rule", "0 rules"),
        (1, "rule", "1 rule"),
        (1_200, "more rule", "1,200 more rules"),
        (2, "batch", "2 batches"),
        (2, "entry", "2 entries"),
        (2, "other", "2 others"),
    ],
)
def test_plural_of_a_number_and_noun_is_text(number: int, noun: str, text: str) -> None:
    assert plural(number, noun) == text
    assert terminal.counted(number, noun) == (text if number else "no rules")
