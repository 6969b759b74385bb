"""Pages of docs whose middle is written by a run: between two marks, with others' texts as text."""

from __future__ import annotations

from pathlib import Path

END = "<!-- end -->\n"
MOST = 400
"""Characters of a text of others that a page takes."""
_HARMLESS = str.maketrans({
    "|": "/", "`": "'", "<": "‹", ">": "›", "[": "(", "]": ")", "*": "·", "_": "\\_",
})  # fmt: skip
_IN_CODE = str.maketrans({"|": "/", "`": "'"})


def write_between(page: Path, begin: str, text: str) -> None:
    """Write the page anew, its part between the mark `begin` and the next `END`."""
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{begin}\n{text}\n{END}{after}")


def plain(text: str) -> str:
    """Return a text of others for a page: one line, and no markup in it."""
    return " ".join(text.split())[:MOST].translate(_HARMLESS)


def code(text: str) -> str:
    """Return a text of others as code of a page: one line, which ends where the code ends."""
    return f"`{' '.join(text.split())[:MOST].translate(_IN_CODE)}`"
