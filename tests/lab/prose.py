"""Count phrases that make texts hard to read: `python -m tests.lab.prose PATH…`.

Each phrase has correct uses, so the measure is a rate: hits per 1,000 words. `make house` limits the rates of kproxy/
and of the pages, by kind of text.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

LONGEST = 35  # words of a sentence
PHRASES = {
    "clause with what": r"(?:^|[.;:(|>] |\*\*|\- |[Rr]eturn )[Ww]hat (?!if\b)[a-z]+\b(?![^.?\n]{0,120}\?)",
    "clause with who": r"\b[Ww]ho(?:ever|se|m)\b|(?:^|[.;:(|] )Who\b(?![^.?\n]{0,80}\?)",
    "whether at the start": r"(?:^|[.;:] )Whether\b",
    "of at the start": r"(?:^|[.;:] |\| |- )Of (?:an?|the|all|what|several|th[eo]se|each|such|it|them|more|less"
    r"|every)\b",
    "preposition with which": r"\b(?:of|by|for|in|to|with|from|at|on|behind|beside|before|after) "
    r"(?:which|what|whom|whose)\b",
    "tell": r"\b(?:is|are|was|were|be|been|being) told\b|\btells?\b",
    "say": r"\bsays?\b|\bsaid\b",
    "stand": r"\bstands?\b|\bstood\b|\bbeside\b",
    "so with an adverb": r"\bso (?:long as|often|many|much later|old|few|large|early)\b|\bfor so long\b",
    "there is": r"\b(?:is|are) (?:not )?there\b(?! (?:a|an|any|no|is|are)\b)|\bwhat there is\b",
    "is no": r"\b(?:is|are|was|were|be) (?:no|none)\b",
    "too at the end": r", too\b",
    "old words": r"\banew\b|\bfor ever\b|\bas ever\b|\bshall\b|\bwhereupon\b|\bmeanwhile\b|\bfrom (?:then|now) on\b"
    r"|[;.,] else\b|\bElse,? ",
    "person": r"\b(?:no|some|any|every)body\b|\bhis\b|\bhim\b",
    "become of": r"\b(?:becomes?|became|comes?|came) of\b",
    "wanted": r"\b(?:is|are) wanted\b|\bmistakes?\b",
    "thing that knows": r"\b(?:kproxy|brokers?|clients?|rules?|workers?|sessions?|connections?|frames?|answers?|bytes"
    r"|files?|lines?|header|log) (?:tells?|knows?|wants?|hears?|believes?|forgets?|learns?|speaks?)\b",
}
COMPILED = [re.compile(text, re.MULTILINE) for text in PHRASES.values()]
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[])|\n+")
COMMENT = re.compile(r"(?:^|\s)#(?!:)\s?(?!noqa|type:|fmt:)([A-Za-z].{8,})$", re.MULTILINE)


LOG_METHODS = frozenset(("debug", "info", "warning", "error", "exception"))
KINDS = ("docstrings and comments", "help, errors and logs", "pages", "decisions")


def spoken(node: ast.AST | None) -> str:
    """Return the constant text of an expression, with an X for each inserted value."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)


def python_texts(source: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of docstrings, comments, `help=` and `description=`, raised errors and log messages."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield KINDS[0], " ".join(re.sub(r"`[^`\n]*`", "X", node.value.value).split())
        elif isinstance(node, ast.keyword) and node.arg in {"help", "description"}:
            yield KINDS[1], spoken(node.value)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            yield KINDS[1], spoken(node.exc.args[0])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_METHODS:
            yield KINDS[1], spoken(node.args[0]) if node.args else ""
    yield KINDS[0], "\n".join(COMMENT.findall(source))


def page_text(text: str) -> str:
    """Return the sentences of a page, without code blocks and the targets of links."""
    text = re.sub(r"^```.*?^```\s*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "X", text))
    return re.sub(r"(?<![.|:])\n(?![\n|#*\-0-9<])", " ", text)


def texts(file: Path) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of a module or a page."""
    if file.suffix == ".py":
        yield from python_texts(file.read_text())
    else:
        yield KINDS[3 if "decisions" in file.parts else 2], page_text(file.read_text())


def count(text: str) -> int:
    """Return the number of phrases and of sentences that are too long. Rows of tables may be longer."""
    sentences = (sentence.lstrip() for sentence in SENTENCE.split(text))
    long = sum(len(sentence.split()) > LONGEST and not sentence.startswith("|") for sentence in sentences)
    return long + sum(len(phrase.findall(text)) for phrase in COMPILED)


def measure(paths: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """Return the hits and the words of each kind of text in all modules and pages below the paths."""
    found = dict.fromkeys(KINDS, (0, 0))
    for path in paths:
        for file in [path] if path.is_file() else sorted((*path.rglob("*.py"), *path.rglob("*.md"))):
            for kind, text in texts(file):
                hits, words = found[kind]
                found[kind] = hits + count(text), words + len(text.split())
    return found


def rates(paths: Iterable[Path]) -> dict[str, int]:
    """Return the hits per 10,000 words of each kind of text."""
    return {kind: 10_000 * hits // max(words, 1) for kind, (hits, words) in measure(paths).items()}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for kind, (hits, words) in measure([Path(name)]).items():
            if words:
                print(f"{1000 * hits / words:6.1f}  {hits:5} in {words:6} words  {kind} of {name}")
