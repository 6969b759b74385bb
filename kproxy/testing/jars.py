"""Apache Kafka's published jars, and what a JVM with Kafka's clients in it needs.

Strategy: two artifacts and a logger that writes to standard error are named; `kproxy.jars` fetches and keeps them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from kproxy.errors import WeDidWrong
from kproxy.jars import MissingTool, jars, java

__all__ = ["KAFKA_VERSION", "MissingTool", "java", "javac", "kafka_libs"]

#: The newest version of which both artifacts below could be fetched whole.
KAFKA_VERSION = "4.3.1"

_DEPENDENCIES = """\
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>"""


def kafka_libs(version: str = KAFKA_VERSION) -> Path:
    """The folder that holds the jars of Kafka's broker, clients and tools in `version`; see `kproxy.jars.jars`."""
    return jars("kafka", version, _DEPENDENCIES.format(version=version), "kafka-clients-*.jar")


def javac() -> str:
    """The path of a Java compiler; MissingTool otherwise."""
    found = shutil.which("javac")
    if found is None:
        raise MissingTool("no javac found, a JDK is needed (Debian: openjdk-17-jdk-headless)")
    return found


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
