"""The screen of rules: what is in force, what each has done, on and off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from textual.app import ComposeResult

from kproxy.cli.admin_client import segment
from kproxy.cli.rules import state

from .details import TextList
from .exchange_cells import ReadValue, TerminalColumn, named
from .paint import TextPart
from .tables import ListedItem, TablePane


def _state(get: ReadValue) -> str:
    return state({name: get(name) for name in ("enabled", "in_force", "stage", "mode")})


def _left(get: ReadValue) -> str:
    left = get("ttl_left")
    return "" if left is None else f"{left:.0f} s"


class RulePane(TablePane):
    """Screen with the rules of the proxy, and the text of one."""

    DEFAULT_CSS = "RulePane #text { height: 12; border-top: solid ansi_blue; }"
    hints = "Enter its text  t off, on  R from 0  a let go  d remove  K all faults  ? help"
    path, listed = "/api/rules", "rules"
    columns = (
        TerminalColumn("name", 20, 0, named("name"), 50),
        TerminalColumn("kind", 12, 1, named("kind"), 20),
        TerminalColumn("origin", 6, 7, named("origin")),
        TerminalColumn("state", 9, 2, _state, 16),
        TerminalColumn("matched", -8, 3, named("matched")),
        TerminalColumn("fired", -7, 4, named("fired")),
        TerminalColumn("applied", -7, 5, named("applied")),
        TerminalColumn("held", -4, 8, named("held")),
        TerminalColumn("left", -6, 9, _left),
        TerminalColumn("position", 20, 10, named("position"), 40),
    )  # fmt: skip

    def compose(self) -> ComposeResult:
        yield from super().compose()
        self.text = TextList()
        yield self.text

    def on_mount(self) -> None:
        self.text.display = False
        self.table.on_move = self.moved

    def more(self) -> Iterator[TextPart]:
        if self.answer.get("killed") is True:
            yield " · all faults are off: K puts them back", "bold red"

    def moved(self) -> None:
        """Show the text of the rule at the cursor, while texts are shown."""
        one = self.table.current()
        if self.text.display and one is not None:
            self.text.show([(line, "") for line in text_of(one).splitlines()])

    def do_enter(self) -> None:
        self.text.display = not self.text.display
        self.moved()

    def act_on(self, action: str, said: str) -> None:
        one = self.chosen()
        if one is not None:
            name = one.get("name")
            self.act("POST", f"{self.path}/{segment(name)}/{action}", f'"{name}" {said}')

    def do_switch(self) -> None:
        one = self.table.current()
        if one is not None and one.get("enabled"):
            self.act_on("disable", "is off")
        else:
            self.act_on("enable", "is on")

    def do_renew(self) -> None:
        self.act_on("reset", "counts from 0")

    def do_resume(self) -> None:
        self.act_on("release", "has let go what it held")

    def do_remove(self) -> None:
        one = self.chosen()
        if one is None:
            return
        name = one.get("name")
        self.host.confirm(
            f'remove the rule "{name}"?',
            lambda: self.act("DELETE", f"{self.path}/{segment(name)}", f'"{name}" is gone'),
            "yes",
        )

    def take(self, answer: Any) -> None:
        super().take(answer)
        self.moved()


def text_of(rule: ListedItem) -> str:
    """Return a rule as YAML, with what is to be said of it as comments above."""
    warnings = rule.get("warnings")
    lines = [f"# {rule.get('position')}"]
    lines += [f"# {text}" for text in (warnings if isinstance(warnings, list) else ())]
    if rule.get("problem"):
        lines.append(f"# it failed: {rule['problem']}")
    written = rule.get("rule")
    if isinstance(written, Mapping):
        lines.append(yaml.safe_dump(dict(written), sort_keys=False, allow_unicode=True))
    return "\n".join(lines)
