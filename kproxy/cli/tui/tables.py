"""Screens with a table from the admin API: rules, connections and captures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml
from textual.app import ComposeResult

from kproxy.cli.admin_client import segment
from kproxy.cli.admin_commands import state

from .details import TextList
from .exchange_rows import ReadValue, TerminalColumn, cells, heads, named, placed, sized
from .host import Pane
from .widgets import LineList, Painted, TextPart

if TYPE_CHECKING:
    from .app import ViewApp

ListedItem = Mapping[str, Any]
"""One rule, connection, capture or held frame, as the API describes it."""


class TableList(LineList):
    """Lines of a table; the cursor stays on its item when the items are read again."""

    def __init__(self, columns: tuple[TerminalColumn, ...], key: str) -> None:
        super().__init__("table")
        self.columns, self.key, self.first = columns, key, 0
        self.items: list[ListedItem] = []

    def show(self, items: Sequence[Any]) -> None:
        before = self.current()
        self.items = [one for one in items if isinstance(one, Mapping)]
        if before is not None:
            same = [place for place, one in enumerate(self.items) if one.get(self.key) == before.get(self.key)]
            self.cursor = same[0] if same else self.cursor
        self.changed()

    def current(self) -> ListedItem | None:
        """Return the item at the cursor, None in an empty table."""
        return self.items[self.cursor] if self.cursor < len(self.items) else None

    def count(self) -> int:
        return len(self.items)

    def line(self, index: int, width: int) -> Sequence[TextPart]:
        return cells(placed(self.columns, width, self.first), self.items[index].get)

    def do_to_right(self) -> None:
        self.first = min(self.first + 1, len(self.columns) - 1)
        self.screen.refresh()

    def do_to_left(self) -> None:
        self.first = max(self.first - 1, 0)
        self.screen.refresh()


class TableHeads(Painted):
    """Line with a table's column heads."""

    DEFAULT_CSS = "TableHeads { height: 1; }"

    def __init__(self, table: TableList) -> None:
        super().__init__()
        self.table = table

    def parts(self, y: int, width: int) -> Sequence[TextPart]:
        return heads(placed(self.table.columns, width, self.table.first))

    def base(self, y: int) -> str:
        return "bold"


class TablePane(Pane):
    """Screen with a table from the admin API. It is read when the screen opens, and then every `every` seconds."""

    path, listed, key = "", "", "name"
    columns: tuple[TerminalColumn, ...] = ()
    every = 2

    def __init__(self, host: ViewApp, widget_id: str) -> None:
        super().__init__(host, widget_id)
        self.table = TableList(self.columns, self.key)
        self.answer: ListedItem = {}
        self.asked = False
        self.ticks = 0

    def compose(self) -> ComposeResult:
        yield TableHeads(self.table)
        yield self.table

    def shown(self) -> None:
        self.table.focus()
        self.read()

    def about(self) -> Sequence[TextPart]:
        count = self.table.count()
        return [(f"{count} {self.listed if count != 1 else self.listed.removesuffix('s')}", ""), *self.more()]

    def more(self) -> Iterator[TextPart]:
        yield from ()

    def searched(self) -> LineList:
        return self.table

    def tick(self) -> None:
        self.ticks += 1
        if not self.ticks % self.every:
            self.read()

    def read(self) -> None:
        """Request the table from the proxy, unless a request is pending."""
        admin = self.host.admin
        if admin is None:
            self.host.say(f"{self.listed} need a running proxy, files have none")
        elif not self.asked:
            self.asked = True
            self.host.work(lambda: self.asking(admin), self.take)

    def asking(self, admin: Any) -> Any:
        """Return the proxy's response. Runs in a thread."""
        try:
            return admin("GET", self.path)
        finally:
            self.asked = False

    def take(self, answer: Any) -> None:
        """Show the proxy's response; invalid parts are left out."""
        self.answer = answer if isinstance(answer, Mapping) else {}
        found = self.answer.get(self.listed)
        self.table.show(found if isinstance(found, list) else [])

    def act(self, method: str, path: str, said: str) -> None:
        """Send a request that changes the proxy, show `said`, and read the table again."""

        def then(answer: Any) -> None:
            self.host.say(said)
            self.read()

        self.host.change(method, path, None, then)

    def chosen(self) -> ListedItem | None:
        """Return the item at the cursor. In an empty table, show a message and return None."""
        found = self.table.current()
        if found is None:
            self.host.say(f"no {self.listed}", good=False)
        return found


class ConnectionPane(TablePane):
    """Screen with the open connections of the clients."""

    hints = "Enter its exchanges  R recycle  X close"
    path, listed, key = "/api/connections", "connections", "id"
    columns = (
        TerminalColumn("id", -5, 0, named("id")),
        TerminalColumn("client id", 12, 2, named("client_id"), 20),
        TerminalColumn("client", 21, 1, named("client")),
        TerminalColumn("listener", 9, 3, named("listener"), 16),
        TerminalColumn("node", -4, 2, named("node")),
        TerminalColumn("broker", 18, 8, named("broker"), 30),
        TerminalColumn("principal", 9, 7, named("principal"), 20),
        TerminalColumn("software", 12, 9, named("software"), 30),
        TerminalColumn("in flight", -9, 4, named("in_flight")),
        TerminalColumn("sent", -6, 5, sized("client_bytes")),
        TerminalColumn("recv", -6, 6, sized("broker_bytes")),
        TerminalColumn("since", 20, 11, named("since")),
        TerminalColumn("bound to", 8, 10, lambda get: "outdated" if get("outdated") else "", 8),
    )  # fmt: skip

    def do_enter(self) -> None:
        one = self.chosen()
        if one is not None:
            self.host.set_filter(f"connection == {one.get('id')}")
            self.host.show("exchanges")

    def do_renew(self) -> None:
        one = self.chosen()
        if one is not None:
            path, number = f"/api/connections/{segment(one.get('id'))}/recycle", one.get("id")
            self.host.confirm(
                f"recycle connection {number} of {one.get('client')}?",
                lambda: self.act("POST", path, f"connection {number} closes once it is idle"),
                "yes",
            )

    def do_close(self) -> None:
        one = self.chosen()
        if one is not None:
            number = one.get("id")
            self.host.confirm(
                f"close connection {number} of {one.get('client')}?",
                lambda: self.act("DELETE", f"/api/connections/{segment(number)}", f"connection {number} closed"),
                "yes",
            )


class CapturePane(TablePane):
    """Screen with the captures of the proxy."""

    hints = "S start one  E end it"
    path, listed = "/api/captures", "captures"
    columns = (
        TerminalColumn("name", 18, 0, named("name"), 40),
        TerminalColumn("state", 8, 1, named("state")),
        TerminalColumn("stopped", 10, 6, named("stopped")),
        TerminalColumn("exchanges", -9, 2, named("exchanges")),
        TerminalColumn("size", -6, 3, sized("size")),
        TerminalColumn("seconds", -7, 4, named("seconds")),
        TerminalColumn("dropped", -7, 5, named("dropped")),
        TerminalColumn("filter", 10, 7, named("filter"), 60),
    )  # fmt: skip

    def do_start(self) -> None:
        self.host.prompt("record to file:", "view.pcapng", self.start)

    def start(self, file: str) -> None:
        admin, wanted = self.host.admin, self.host.filter_text
        if admin is None or not file.strip():
            return
        query = {"file": file.strip(), "filter": wanted or None}

        def then(answer: Any) -> None:
            self.host.say(f"recording to {file.strip()} with the filter of the list")
            self.read()

        self.host.work(lambda: admin("POST", self.path, query=query), then)

    def do_stop(self) -> None:
        one = self.chosen()
        if one is not None:
            self.act("DELETE", f"{self.path}/{segment(one.get('name'))}", f"{one.get('name')} stopped")


def _state(get: ReadValue) -> str:
    return state({name: get(name) for name in ("enabled", "in_force", "stage", "mode")})


def _left(get: ReadValue) -> str:
    left = get("ttl_left")
    return "" if left is None else f"{left:.0f} s"


class RulePane(TablePane):
    """Screen with the rules of the proxy, and the text of one rule."""

    DEFAULT_CSS = "RulePane #text { height: 12; border-top: solid ansi_blue; }"
    hints = "Enter text  t off, on  R reset  a resume  d remove  K all faults  ? help"
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
        if self.answer.get("faults_disabled") is True:
            yield " · faults are disabled: K enables them", "bold red"

    def moved(self) -> None:
        """Show the text of the rule at the cursor, if texts are on."""
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
        self.act_on("reset", "counters reset")

    def do_resume(self) -> None:
        self.act_on("resume", "resumed what it held")

    def do_remove(self) -> None:
        one = self.chosen()
        if one is None:
            return
        name = one.get("name")
        self.host.confirm(
            f'remove the rule "{name}"?',
            lambda: self.act("DELETE", f"{self.path}/{segment(name)}", f'"{name}" removed'),
            "yes",
        )

    def take(self, answer: Any) -> None:
        super().take(answer)
        self.moved()


def text_of(rule: ListedItem) -> str:
    """Return a rule as YAML, with its state as comments above."""
    warnings = rule.get("warnings")
    lines = [f"# {rule.get('position')}"]
    lines += [f"# {text}" for text in (warnings if isinstance(warnings, list) else ())]
    if rule.get("problem"):
        lines.append(f"# failed: {rule['problem']}")
    written = rule.get("rule")
    if isinstance(written, Mapping):
        lines.append(yaml.safe_dump(dict(written), sort_keys=False, allow_unicode=True))
    return "\n".join(lines)
