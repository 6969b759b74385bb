"""Tests in process on each Python that kproxy is meant for and this machine has: `nox`, or `nox -s tests-3.11`.

`nox -- tests/protocol -k records` runs these tests only. Whatever starts a process is left out, as by `make quick`.
"""

from __future__ import annotations

import shutil
import subprocess

import nox

PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def runs(version: str) -> bool:
    """Return True if this machine has that Python; a name may be there and lead nowhere."""
    path = shutil.which(f"python{version}")
    return path is not None and not subprocess.run([path, "--version"], capture_output=True, check=False).returncode


@nox.session(python=[version for version in PYTHONS if runs(version)])
def tests(session: nox.Session) -> None:
    """Run the tests that start no process."""
    session.install("-c", "constraints.txt", "-e", ".[test,demo,pipeline]")
    session.run("pytest", "-m", "not process and not deep and not measured", *session.posargs)
