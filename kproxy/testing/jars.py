"""Apache Kafka's published jars, fetched by Maven once per machine and kept.

Strategy: a project file of a few lines names two artifacts and a logger that
writes to standard error; Maven resolves what they need and copies all of it into one
folder. That folder is filled under a temporary name and renamed when it is whole, behind a file lock, so several test
runs may ask at the same time and none ever sees half of it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from crc32c import crc32c

from kproxy.errors import WeDidWrong

#: The newest version of which both artifacts below could be fetched whole.
KAFKA_VERSION = "4.3.1"

#: Kafka 4 brokers need it (KIP-1013).
JAVA_AT_LEAST = 17

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kproxy</groupId><artifactId>kafka-jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


class MissingTool(WeDidWrong):
    """Something that tests need is not installed; the message names the Debian package that brings it."""


def kafka_libs(version: str = KAFKA_VERSION) -> Path:
    """The folder that holds the jars of Kafka's broker, clients and tools in `version`.

    Kept in `$KPROXY_CACHE`, or `~/.cache/kproxy`. Raises MissingTool without Maven or Java, and WeDidWrong with
    Maven's last lines when they cannot be fetched.
    """
    cache = cache_folder()
    pom = _POM.format(version=version)
    name = f"kafka-{version}-{crc32c(pom.encode()):08x}"  # another list of artifacts is another folder
    libs = cache / name
    if libs.is_dir():
        return libs
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not libs.is_dir():
            _fetch(version, pom, libs)
    return libs


def cache_folder() -> Path:
    """Where things that take long to fetch are kept between runs."""
    set_by_user = os.environ.get("KPROXY_CACHE")
    if set_by_user:
        return Path(set_by_user).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kproxy"


def java() -> str:
    """The path of a Java that is new enough for Kafka 4; MissingTool otherwise."""
    found = shutil.which("java")
    if found is None:
        raise MissingTool(f"no java found, Java {JAVA_AT_LEAST} or newer is needed (Debian: openjdk-17-jdk-headless)")
    banner = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', banner)
    if version is None or int(version[1]) < JAVA_AT_LEAST:
        shown = version[1] if version else "of unknown version"
        raise MissingTool(f"java is {shown}, {JAVA_AT_LEAST} or newer is needed (Debian: openjdk-17-jdk-headless)")
    return found


def javac() -> str:
    """The path of a Java compiler; MissingTool otherwise."""
    found = shutil.which("javac")
    if found is None:
        raise MissingTool("no javac found, a JDK is needed (Debian: openjdk-17-jdk-headless)")
    return found


def _fetch(version: str, text: str, libs: Path) -> None:
    java()
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingTool(f"no mvn found, Maven is needed to fetch the jars of Kafka {version} (Debian: maven)")
    with tempfile.TemporaryDirectory(prefix=f".kafka-{version}-", dir=libs.parent) as folder:
        pom = Path(folder, "pom.xml")
        pom.write_text(text)
        jars = Path(folder, "jars")
        done = subprocess.run(
            [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or not any(jars.glob("kafka-clients-*.jar")):
            last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
            raise WeDidWrong(
                f"the jars of Kafka {version} could not be fetched, mvn exit code {done.returncode}:\n{last}"
            )
        jars.rename(libs)


def main(versions: list[str]) -> int:
    """`python -m kproxy.testing.jars [VERSION …]`: fetch them now, so that no test waits for it. The exit code."""
    for version in versions or [KAFKA_VERSION]:
        try:
            folder = kafka_libs(version)
        except WeDidWrong as error:
            sys.stderr.write(f"{error}\n")
            return 1
        sys.stdout.write(f"Kafka {version}: {len(list(folder.iterdir()))} jars\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
