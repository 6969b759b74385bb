"""What can go wrong in the pipeline by its own names.

KproxyError
├── TheyDidWrong
│   └── LakeError      a path, a source or a table that cannot be used as asked; says which and why
└── WeDidWrong
    └── UnknownTable   code asks for a table or column that is not declared
"""

from __future__ import annotations

from kproxy.errors import TheyDidWrong, WeDidWrong


class LakeError(TheyDidWrong):
    """A path, a source or a table cannot be used as asked; the message says which and why."""


class UnknownTable(WeDidWrong):
    """Code asks for a table or a column that is not declared."""
