r"""Names that clients' certificates give them, by rules in the notation of Kafka's `ssl.principal.mapping.rules`.

    RULE:^CN=([^,]+),OU=Services.*$/$1/L    the whole subject must match; $1 … are its groups; L or U: lower, upper case
    DEFAULT                                 the subject as it is

The first that matches gives the name (KIP-371). Patterns are RE2's, which know no look-around; in pattern and
replacement `\\/` is a slash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

DEFAULT: Final = "DEFAULT"
MOST_MEMORY: Final = 1 << 20
"""Bytes that a pattern may take; those of names take some kB."""

_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_GROUP = re.compile(r"\$([0-9])")
_CASES: dict[str, Callable[[str], str]] = {"": str, "L": str.lower, "U": str.upper}


class PrincipalRules:
    """Rules of one listener, made from their texts, in order. Raises ValueError for a text that is none."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.rules = [(text, None if text == DEFAULT else PrincipalRule(text)) for text in texts]

    def name(self, subject: str) -> str | None:
        """Return the name of the client with this subject; None: no rule matches."""
        for _, rule in self.rules:
            name = subject if rule is None else rule.name(subject)
            if name is not None:
                return name
        return None


class PrincipalRule:
    """Rule that makes a name from the subjects that match its pattern."""

    def __init__(self, text: str) -> None:
        import re2  # 10 ms, and most listeners have no pattern

        match = _RULE.fullmatch(text)
        if match is None:
            raise ValueError(f'"{text}" is no rule: RULE:pattern/replacement/, with L or U behind it, or DEFAULT')
        options = re2.Options()
        options.log_errors, options.max_mem = False, MOST_MEMORY
        try:
            self.pattern: Any = re2.compile(match[1].replace("\\/", "/"), options=options)
        except re2.error as error:
            problem = error.args[0]
            reason = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
            raise ValueError(f'the pattern of "{text}" cannot be read: {reason}') from None
        self.replacement, self.case = match[2].replace("\\/", "/"), _CASES[match[3]]
        for number in map(int, _GROUP.findall(self.replacement)):
            if number > self.pattern.groups:
                raise ValueError(f'"{text}" has ${number}, and its pattern has {self.pattern.groups} groups')

    def name(self, subject: str) -> str | None:
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None
        return self.case(_GROUP.sub(lambda group: match[int(group[1])] or "", self.replacement))
