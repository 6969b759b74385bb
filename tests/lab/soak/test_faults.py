"""The rules of the soak's faults are rules: one that is rejected would make nothing go wrong."""

from __future__ import annotations

import json

from kproxy.rules.document.read import parse_rules
from tests.lab.soak.faults import FAULTS
from tests.lab.soak.scene import RENAMES


def test_every_fault_is_a_rule() -> None:
    """Alone with the renames, as it is loaded."""
    for fault in FAULTS:
        parse_rules(json.dumps({"rules": [*RENAMES, fault]}), "faults")
