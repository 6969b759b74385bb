"""Actions of the keys that act on every screen of the view, and the names that `:` takes."""

from __future__ import annotations

from typing import Any

from kproxy.cli.admin_client import segment
from kproxy.cli.filters import is_file

from .file_source import ViewedFiles
from .host import KeyHost
from .keys import KEYS
from .user import user

INTERCEPT_TTL = "10m"


class AppKeys:
    """Methods for the keys that act everywhere."""

    def __init__(self, app: KeyHost) -> None:
        self.app = app

    def do_help(self) -> None:
        self.app.show("help")

    def do_back(self) -> None:
        app = self.app
        if app.shown != "exchanges":
            app.show("exchanges")
        else:
            app.confirm("leave?", app.leave)

    def do_leave(self) -> None:
        self.app.leave()

    def do_command(self) -> None:
        self.app.prompt("do:", "", self.command)

    def command(self, text: str) -> None:
        """Do what a key does, or one thing more, by its name."""
        name, _, rest = text.strip().partition(" ")
        if name == "filter" and rest:
            self.app.set_filter(rest)
        elif name == "load" and rest:
            self.load(rest)
        elif name in {use.does for use in KEYS} | {"quit"}:
            self.app.use("leave" if name == "quit" else name)
        elif name:
            names = ", ".join(sorted({use.does for use in KEYS}))
            self.app.say(f'there is no "{name}"; there are {names}', good=False)

    def do_theme(self) -> None:
        self.app.turn_theme()

    def do_filter(self) -> None:
        self.app.prompt("filter:", self.app.filter_text, self.app.set_filter)

    def do_pause(self) -> None:
        self.app.pause()

    def do_clear(self) -> None:
        self.app.clear()

    def do_load(self) -> None:
        self.app.prompt("read the file (none: the proxy):", "", self.load)

    def load(self, name: str) -> None:
        """Read a file in place of what is read now, or the proxy if the name is empty."""
        app, name = self.app, name.strip()
        try:
            there = not name or is_file(name)
        except Exception as error:  # noqa: BLE001 - click's own, for a name that looks like a file's
            app.say(str(getattr(error, "message", error)), good=False)
            return
        if not there or name == "-":
            app.say(f"there is no file {name}", good=False)
            return
        app.change_source(ViewedFiles([name]) if name else app.proxy)

    def do_intercept(self) -> None:
        self.app.prompt("hold what this filter holds for:", self.app.filter_text, self.intercept)

    def intercept(self, text: str) -> None:
        """Ask back, then add a rule that holds what a filter holds for."""
        rule: dict[str, Any] = {"name": self.rule_name(), "kind": "intercept"}
        if text.strip():
            rule["filter"] = text.strip()
        path = f"/api/rules?ttl={INTERCEPT_TTL}&replace=true&page={self.app.page}"

        def add() -> None:
            self.app.change("POST", path, {"rules": [rule]}, done)

        def done(answer: Any) -> None:
            self.app.intercepting = True
            self.app.say(f"held for ten minutes, or until this view ends: {text.strip() or 'everything'}; 3 shows it")

        self.app.confirm(f"hold {text.strip() or 'every request'} of all clients?", add)

    def rule_name(self) -> str:
        """Return the name of the rule that this terminal's `i` puts."""
        return f"hold for {user()}"

    def do_intercepting(self) -> None:
        app, name, on = self.app, self.rule_name(), not self.app.intercepting
        said = "on" if on else "off"
        path = f"/api/rules/{segment(name)}/{'enable' if on else 'disable'}"

        def turned(answer: Any) -> None:
            app.intercepting = on
            app.say(f'"{name}" is {said}')

        app.confirm(f'turn "{name}" {said}?', lambda: app.change("POST", path, None, turned), "yes")

    def do_resume_all(self) -> None:
        app = self.app

        def resume() -> None:
            app.change("POST", "/api/held/resume", {"who": user()},
                       lambda answer: app.say(f"{answer.get('resumed', '?')} resumed"))  # fmt: skip

        app.confirm("resume all that is held?", resume, "yes")

    def do_kill(self) -> None:
        app = self.app
        admin = app.admin
        if admin is None:
            app.say("files have no faults to turn off")
            return

        def then(rules: Any) -> None:
            killed = rules.get("killed") is True
            question = "enable all faults again?" if killed else "disable all faults, for all clients?"
            app.confirm(question, lambda: app.change("DELETE" if killed else "POST", "/api/kill", None, done), "yes")

        def done(answer: Any) -> None:
            turned = answer.get("turned")
            count = len(turned) if isinstance(turned, list) else "?"
            app.say(f"{count} faults are {'off' if answer.get('killed') else 'in force again'}")

        app.work(lambda: admin("GET", "/api/rules"), then)
