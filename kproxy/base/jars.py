"""Published jars, fetched by Maven once per machine and kept.

Strategy: a project file of a few lines names artifacts; Maven resolves what they need and copies all of it into one
folder. That folder is filled under a temporary name and renamed when it is whole, behind a file lock, so several
processes may ask at the same time and none ever sees half of it.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

from crc32c import crc32c

from .errors import InternalError
from .system import lock

JAVA_AT_LEAST = 17
"""Lowest version of Java: brokers of Kafka 4 need it (KIP-1013), and so does Spark 4."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kproxy</groupId><artifactId>{name}-jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


class MissingTool(InternalError):
    """Program that is not installed; the message names the Debian package that brings it."""


def jars(name: str, version: str, dependencies: str, one_of_them: str) -> Path:
    """Return the folder with the jars of `dependencies` (Maven's XML) and all that they need.

    It is kept in `$KPROXY_CACHE`, or `~/.cache/kproxy`, as `name-version-…`. `one_of_them` is a pattern that matches
    a file of each complete folder. Raises MissingTool without Maven or Java, and InternalError with Maven's last
    lines when they cannot be fetched.
    """
    cache = cache_folder()
    pom = _POM.format(name=name, dependencies=dependencies)
    called = f"{name}-{version}-{crc32c(pom.encode()):08x}"  # another list of artifacts is another folder
    folder = cache / called
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{called}.lock").open("w") as held:
        lock(held.fileno(), wait=True)
        if not folder.is_dir():
            _fetch(f"{name} {version}", pom, one_of_them, folder)
    return folder


def cache_folder() -> Path:
    set_by_user = os.environ.get("KPROXY_CACHE")
    if set_by_user:
        return Path(set_by_user).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kproxy"


def java() -> str:
    """Path of a java of at least version JAVA_AT_LEAST. Raises MissingTool otherwise."""
    found = shutil.which("java")
    if found is None:
        raise MissingTool(f"no java found, Java {JAVA_AT_LEAST} or newer is needed (Debian: openjdk-17-jdk-headless)")
    version = re.search(r'version "(\d+)', _banner(found))
    if version is None or int(version[1]) < JAVA_AT_LEAST:
        shown = version[1] if version else "of unknown version"
        raise MissingTool(f"java is {shown}, {JAVA_AT_LEAST} or newer is needed (Debian: openjdk-17-jdk-headless)")
    return found


@functools.cache
def _banner(program: str) -> str:
    return subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr


def announce(text: str) -> None:
    """Write to standard error what takes long. pytest would hide that, so `testing.plugin` puts another function in
    its place."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


telling = [announce]
"""Functions that announce what takes long; the last one is called."""


def _fetch(what: str, text: str, one_of_them: str, folder: Path) -> None:
    java()
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingTool(f"no mvn found, Maven is needed to fetch the jars of {what} (Debian: maven)")
    telling[-1](f"kproxy: fetching the jars of {what} with Maven into {folder}; this takes a minute or more, once")
    begun = monotonic()
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        pom = Path(temporary, "pom.xml")
        pom.write_text(text)
        found = Path(temporary, "jars")
        done = subprocess.run(
            [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={found}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or not any(found.glob(one_of_them)):
            last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
            raise InternalError(f"the jars of {what} could not be fetched, mvn exit code {done.returncode}:\n{last}")
        size = sum(one.stat().st_size for one in found.iterdir()) >> 20
        found.rename(folder)
    telling[-1](f"kproxy: fetched {what}: {size} MB in {monotonic() - begun:.0f} s")
