"""Rules whose changes are on their way: they have been applied when the kernel has what they changed (promise 7)."""

from __future__ import annotations

from kproxy.rules.running import Running

from .commands import Command, Send


class Marks:
    """Marks in one session's commands. A mark is an empty Send with a token below 0, behind the bytes that rules
    changed."""

    __slots__ = ("acted", "commands", "number", "waiting")

    def __init__(self, commands: list[Command]) -> None:
        self.commands = commands
        self.acted: tuple[list[Running], list[Running]] = ([], [])  # whose changes leave with what is put next, by side
        self.waiting: dict[int, list[Running]] = {}  # by token
        self.number = 0

    def put(self) -> None:
        """Put the marks of all rules that acted since the last call."""
        for side, acted in enumerate(self.acted):
            if acted:
                self.number -= 1
                self.waiting[self.number] = acted.copy()
                acted.clear()
                self.commands.append(Send(side, b"", self.number))

    def settle(self) -> None:
        """Count the rules that acted as applied: none of their changes has to reach the kernel."""
        for acted in self.acted:
            for running in acted:
                running.was_applied()
            acted.clear()

    def sent(self, token: int) -> None:
        """Count the rules of this mark as applied: the kernel has all bytes before it."""
        for running in self.waiting.pop(token, ()):
            running.was_applied()
