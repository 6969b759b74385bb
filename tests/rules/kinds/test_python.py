"""The kind python: hooks, what they may say, and what becomes of those that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.store import RuleStore
from kproxy.rules.exchange import Delay
from kproxy.rules.kinds.python import PythonEffect
from kproxy.rules.values.source import Source
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

HEARTBEAT, PRODUCE, METADATA = 12, 0, 3

HOOKS = """
from kproxy.rules.exchange import *

seen = []

def nothing(exchange, message):
    seen.append((exchange.api.name, message.direction))

def fail(exchange, message):
    return Fail(27, "because")

def several(exchange, message):
    return [Delay(1.0), Edit()]

def edit(exchange, message):
    message.body["member_id"] = "other"
    return Edit()

def answer(exchange, message):
    return Answer({"error_code": 27})

def raises(exchange, message):
    message.body["group_id"] = "changed and not told"
    raise KeyError("topic")

def nonsense(exchange, message):
    return "no decision"

def bad_edit(exchange, message):
    message.body["generation_id"] = "text"
    return Edit()

def bad_answer(exchange, message):
    return Answer({"error_code": "text"})

def bad_code(exchange, message):
    return Fail("NOT_COORDINATOR")

def for_responses(exchange, message):
    return Repeat()

async def later(exchange, message):
    pass

def one(message):
    pass

number = 5

class Keeper:
    @staticmethod
    def inside(exchange, message):
        return Delay(1.0)
"""


@pytest.fixture(autouse=True)
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of hooks in a folder of the import path."""
    (tmp_path / "my_hooks.py").write_text(HOOKS)
    (tmp_path / "broken_hooks.py").write_text("def f(:\n")
    (tmp_path / "sad_hooks.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "leaving_hooks.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "my_hooks", raising=False)


def calling(function: str, more: str = "") -> Dialogue:
    return Dialogue(f"rules: [{{name: r, kind: python, match: {{api: Heartbeat}}, call: 'my_hooks:{function}'{more}}}]")


ASKED = request(HEARTBEAT, 3, 1, group_id="g", member_id="m")
SAID = response(HEARTBEAT, 3, 1)


@pytest.mark.parametrize(
    ("call", "mistake"),
    [
        ("my_hooks", '"my_hooks" is not module:function, such as hooks:slow_writes'),
        ("my_hooks:", '"my_hooks:" is not module:function'),
        ("/etc/passwd:x", '"/etc/passwd:x" is not module:function'),
        ("my_hooks:fial", 'my_hooks has no "fial", did you mean "fail"?'),
        ("other_hooks:f", 'expected an installed module or one in PYTHONPATH, got "other_hooks"'),
        ("my_hooks.deeper:f", 'expected an installed module or one in PYTHONPATH, got "my_hooks.deeper"'),
        ("broken_hooks:f", "broken_hooks cannot be imported: SyntaxError: "),
        ("sad_hooks:f", "sad_hooks cannot be imported: No module named 'nothing_of_this_name'"),
        ("leaving_hooks:f", "leaving_hooks cannot be imported: SystemExit: 3"),
        ("my_hooks:later", "expected a plain function, got an asynchronous function or generator my_hooks:later"),
        ("my_hooks:one", "my_hooks:one has to take two arguments, (exchange, message)"),
        ("my_hooks:number", "expected a function, got int my_hooks:number"),
    ],
)
def test_a_hook_that_cannot_be_called_is_refused(mistakes_of: Any, call: str, mistake: str) -> None:
    """With the reason, at its place, when the rule loads."""
    (line,) = mistakes_of(f"kind: python, call: '{call}'")

    assert line.startswith(mistake), line


def test_the_mistake_has_a_place() -> None:
    """Line and column of `call`."""
    with pytest.raises(DocumentError, match=r'r.yaml:4:11: expected an installed module .* got "nowhere"'):
        RuleStore().replace_files([Source("r.yaml", "rules:\n  - name: r\n    kind: python\n    call: nowhere:f\n")], 0)


def test_only_files_may_run_code(tmp_path: Path) -> None:
    """The module is not even imported for a rule that comes through the API."""
    (tmp_path / "loud_hooks.py").write_text("raise RuntimeError('imported')\n")
    document = Source("api", "rules: [{name: r, kind: python, call: 'loud_hooks:f'}]")
    with pytest.raises(DocumentError, match="run code in this process and are taken from files only") as found:
        RuleStore().put(document, "api", 0)

    assert "imported" not in str(found.value)


@pytest.mark.parametrize(
    ("at", "calls"), [("request", ["request"]), ("response", ["response"]), ("both", ["request", "response"])]
)
def test_it_is_called_with_the_messages_it_asks_for(at: str, calls: list[str]) -> None:
    """In either direction; returning nothing leaves every byte."""
    talk = calling("nothing", f", at: {at}").client(ASKED).broker(SAID)
    module = __import__("my_hooks")

    assert (talk.to_broker, talk.to_client) == (ASKED, SAID)
    assert module.seen == [("Heartbeat", direction) for direction in calls]
    assert (talk.rules.live[0].fired, talk.rules.live[0].applied) == (1, 0)


def test_what_it_returns_is_done() -> None:
    """One decision or several, an edit, an answer, a method of a class."""
    (answer,) = calling("fail").client(ASKED).responses((HEARTBEAT, 3))
    assert answer.body["error_code"] == 27

    (answer,) = calling("answer").client(ASKED).responses((HEARTBEAT, 3))
    assert answer.body["error_code"] == 27

    assert calling("edit").client(ASKED).to_broker == request(HEARTBEAT, 3, 1, group_id="g", member_id="other")

    for name in ("several", "Keeper.inside"):
        talk = calling(name).client(ASKED)
        assert talk.to_broker == b""
        assert talk.later(1.0).to_broker == ASKED

    (answer,) = calling("fail", ", at: response").client(ASKED).broker(SAID).responses((HEARTBEAT, 3))
    assert answer.body["error_code"] == 27


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "my_hooks:raises with Heartbeat 3: KeyError: 'topic' ("),
        ("nonsense", "TypeError: expected a decision (kproxy.rules.exchange) or None, got 'no decision'"),
        ("bad_edit", "my_hooks:bad_edit with Heartbeat 3: EncodeError: Heartbeat v3"),
        ("bad_answer", "my_hooks:bad_answer with Heartbeat 3: EncodeError: "),
        ("bad_code", "TypeError: expected an error code (number), got 'NOT_COORDINATOR'"),
        ("for_responses", "TypeError: Repeat is for responses, this is a request"),
    ],
)
def test_one_that_fails_is_named_and_counted(name: str, said: str) -> None:
    """The frame goes on as it came, or the connection is closed, as the rule says; nothing of a half-made change
    stays."""
    talk = calling(name).client(ASKED).broker(SAID)
    failed, slow = talk.rules.live[0].effect.problems()

    assert (talk.to_broker, talk.to_client) == (ASKED, SAID)
    assert (failed.what, failed.count, slow.count) == ("hook_failed", 1, 0)
    assert said in failed.last

    talk = calling(name, ", on_error: close").client(ASKED)
    assert talk.to_broker == b""
    assert talk.closed is not None


def test_a_failed_hook_leaves_nothing_to_the_next_rule() -> None:
    """Which changes the same body, and has it encoded."""
    rules = "{name: a, kind: python, match: {api: Heartbeat}, call: 'my_hooks:raises'}, "
    rules += "{name: b, kind: python, match: {api: Heartbeat}, call: 'my_hooks:edit'}"
    talk = Dialogue(f"rules: [{rules}]").client(ASKED)

    assert talk.to_broker == request(HEARTBEAT, 3, 1, group_id="g", member_id="other")


def test_a_slow_hook_is_counted(hand: Any) -> None:
    """More than 10 ms, by the clock that it is given."""
    effect = hand.rule("kind: python, match: {api: Heartbeat}, call: 'my_hooks:nothing'").start()
    assert isinstance(effect, PythonEffect)
    times = iter([1.0, 1.009, 2.0, 2.011])
    effect.clock = lambda: next(times)
    exchange = hand.exchange(HEARTBEAT, 3)
    effect.on_request(exchange, (), 0)
    effect.on_request(exchange, (), 0)

    assert (effect.slow.count, effect.slow.last) == (1, "my_hooks:nothing with Heartbeat 3: 11 ms")


def test_the_example_waits_for_many_topics(hand: Any) -> None:
    """The hook that the documentation names."""
    effect = hand.rule("kind: python, match: {api: Produce}, call: 'kproxy.rules.example_hooks:many_topics_wait'")
    data = [{"name": f"t{number}", "partition_data": []} for number in range(11)]

    assert effect.start().on_request(hand.exchange(PRODUCE, 9, {"topic_data": data}), (), 0) == [Delay(1.0)]
    assert effect.start().on_request(hand.exchange(PRODUCE, 9, {"topic_data": data[:10]}), (), 0) == []
