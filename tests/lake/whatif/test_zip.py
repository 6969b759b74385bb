"""kproxy in a zip, which is how `spark-submit --py-files WHEEL` brings it to drivers and workers."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import kproxy

PACKAGE = Path(kproxy.__file__).parent
PROGRAM = """
import kproxy
from kproxy.tools.rehearse.whatif.candidate import Candidate
from kproxy.tools.replay.compare import TABLE
from kproxy.protocol.table import schema, shapes
rule = "rules: [{name: r, kind: error, match: {api: Produce}, error: NOT_LEADER_OR_FOLLOWER}]"
Candidate([("r.yaml", rule)], 0.0)
for key in schema.paths():
    schema.load(key)
TABLE.read_bytes(), shapes.TABLE.read_bytes()
print(kproxy.__file__)
"""


def test_what_the_package_reads_is_found_in_a_zip(tmp_path: Path) -> None:
    """Rules are made and every message is read, without a file of the package on disk."""
    packed = tmp_path / "kproxy.whl"
    with zipfile.ZipFile(packed, "w") as file:
        for path in sorted(PACKAGE.rglob("*")):
            if path.suffix in (".py", ".yaml", ".j2"):
                file.write(path, str(path.relative_to(PACKAGE.parent)))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(packed)},
    )  # fmt: skip

    assert (done.returncode, done.stdout.startswith(str(packed))) == (0, True), done.stderr[-2000:]
