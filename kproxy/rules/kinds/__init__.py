"""Rule kinds: one module per kind; base classes are in `base`.

The module's name is the word under `kind:`. The class has a field `kind` with this word. Guide to a new kind:
CONTRIBUTING.md. Imports: select, names, values, exchange, trigger. Entry point: `KINDS`.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from os import listdir
from typing import Any, get_args

from kproxy.rules.kinds.base.rule import GROUPS, Rule


class Kinds(MutableMapping[str, "type[Rule]"]):
    """Table of the kinds by their words, in the order of the alphabet.

    A class is imported when it is asked for: of all kinds, a start needs those that its rules name.
    """

    def __init__(self, words: Iterator[str]) -> None:
        self.classes: dict[str, type[Rule] | None] = dict.fromkeys(words)

    def __getitem__(self, kind: str) -> type[Rule]:
        model = self.classes[kind]
        if model is None:
            model = self.classes[kind] = class_of(kind)
        return model

    def __setitem__(self, kind: str, model: type[Rule]) -> None:
        self.classes[kind] = model

    def __delitem__(self, kind: str) -> None:
        del self.classes[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self.classes)

    def __len__(self) -> int:
        return len(self.classes)

    def by_group(self) -> dict[str, list[str]]:
        """Return the kinds of each group in order. Imports all of them."""
        return {group: [kind for kind, model in self.items() if model.group == group] for group in GROUPS}


def words_of_modules() -> Iterator[str]:
    """Yield the name of each module of this package that is a kind."""
    try:
        names = [file.removesuffix(".py") for file in listdir(__path__[0]) if file.endswith(".py")]
    except NotADirectoryError:  # the package is in a zip file
        from pkgutil import iter_modules  # 18 ms, which other starts do without

        names = [module.name for module in iter_modules(__path__)]
    for name in sorted(names):
        if name not in {"__init__", "base"}:
            yield name


def class_of(kind: str) -> type[Rule]:
    for value in vars(import_module(f"{__name__}.{kind}")).values():
        if isinstance(value, type) and _word(value) == kind:
            return value
    raise TypeError(f'{__name__}.{kind} has no class with a field kind: Literal["{kind}"]')


def _word(model: Any) -> object:
    field = getattr(model, "model_fields", {}).get("kind")
    return None if field is None else next(iter(get_args(field.annotation)), None)


KINDS = Kinds(words_of_modules())
