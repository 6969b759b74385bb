"""Writes the inputs, past all faults: a `--before` for programs in other languages."""

from __future__ import annotations

import os
from types import SimpleNamespace

from shop import seed as write_inputs

if __name__ == "__main__":
    write_inputs(SimpleNamespace(own_bootstrap_servers=os.environ["KPROXY_DIRECT"]))
