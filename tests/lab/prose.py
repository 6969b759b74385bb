"""Count phrases that make docstrings, comments and messages hard to read: `python -m tests.lab.prose PATH…`.

Each phrase has correct uses, so the measure is a rate: hits per 1,000 words. `make house` limits the rate of kproxy/.
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


def texts(source: str) -> Iterator[str]:
    """Yield docstrings, comments, texts of `help=` and `description=`, and messages of raised errors."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield " ".join(re.sub(r"`[^`\n]*`", "X", node.value.value).split())
        elif isinstance(node, ast.keyword) and node.arg in {"help", "description"}:
            if isinstance(node.value, ast.Constant):
                yield str(node.value.value)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            first = node.exc.args[0]
            parts = first.values if isinstance(first, ast.JoinedStr) else [first]
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)
    yield "\n".join(COMMENT.findall(source))


def count(text: str) -> int:
    """Return the number of phrases and of sentences that are too long."""
    long = sum(len(sentence.split()) > LONGEST for sentence in SENTENCE.split(text))
    return long + sum(len(phrase.findall(text)) for phrase in COMPILED)


def measure(paths: Iterable[Path]) -> tuple[int, int]:
    """Return the hits and the words of all modules below the paths."""
    hits = words = 0
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            for text in texts(file.read_text()):
                hits += count(text)
                words += len(text.split())
    return hits, words


if __name__ == "__main__":
    for name in sys.argv[1:]:
        hits, words = measure([Path(name)])
        print(f"{1000 * hits / max(words, 1):6.1f}  {hits:5} in {words:6} words  {name}")
