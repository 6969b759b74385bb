"""Errors of the pipeline.

KproxyError
├── InputError
│   └── LakeError      a path, a source or a table that cannot be used as asked; says which and why
└── InternalError
    └── UnknownTable   code asks for a table or column that is not declared
"""

from __future__ import annotations

from kproxy.errors import InputError, InternalError


class LakeError(InputError):
    """Error for a path, a source or a table that cannot be used as asked; the message says which and why."""


class UnknownTable(InternalError):
    """Error for code that asks for a table or a column which is not declared."""
