"""Frames that a rule holds, over the API of a proxy whose connections are dialogues."""

from __future__ import annotations

from time import monotonic
from typing import Any

from kproxy.rules.exchange import Facts
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.tools.rehearse.dialogue import Dialogue
from tests.support.holding import HeldOwner


class Held:
    """API of a proxy with one rule that holds, and one connection."""

    def __init__(self, api: Any) -> None:
        self.api, self.told = api, list[tuple[str, str, str, str]]()
        self.desk = api.proxy.desk
        self.desk.tell.append(lambda what, held, how, who: self.told.append((what, held.id, how, who)))
        self.talk = self.connect(1)

    def connect(self, number: int) -> Dialogue:
        facts, rules = Facts("main", "main", "127.0.0.1"), self.api.proxy.rules
        plan = Plan(ConnectionSettings(advertise=False), rules.live)
        talk = Dialogue(shared=self.api.proxy.shared["main"], plan=plan, facts=facts, number=number, now=monotonic())
        talk.rules = rules
        talk.session.owner = HeldOwner(talk)
        return talk

    async def __call__(self, path: str, **body: Any) -> Any:
        """POST to /api/held/1-1/… with revision 1, or another one."""
        given = {"revision": 1} | body if "by" not in body and path != "claim" else body
        return await self.api("POST", f"/api/held/1-1/{path}", given)

    async def list(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.api("GET", "/api/held")).json["held"]
        return found
