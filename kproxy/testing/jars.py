"""Apache Kafka's published jars, and the other artifacts of a JVM that has Kafka's clients in it.

Strategy: two artifacts and a logger that writes to standard error are named; `kproxy.jars` fetches and keeps them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from kproxy.errors import InternalError
from kproxy.jars import MissingTool, jars, java

__all__ = ["KAFKA_VERSION", "MissingTool", "client_libs", "connect_libs", "java", "javac", "kafka_libs", "streams_libs"]

#: The newest version of which both artifacts below could be fetched whole.
KAFKA_VERSION = "4.3.1"

_DEPENDENCIES = """\
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>"""


def kafka_libs(version: str = KAFKA_VERSION) -> Path:
    """Return the folder that holds the jars of Kafka's broker, clients and tools in `version`; see
    `kproxy.jars.jars`."""
    return jars("kafka", version, _DEPENDENCIES.format(version=version), "kafka-clients-*.jar")


def client_libs(version: str = KAFKA_VERSION) -> Path:
    """Return the folder with Kafka's Java clients alone, of `version`, and with the libraries for JSON and for logs to
    standard error."""
    return jars("clients", version, _program("kafka-clients", version), "kafka-clients-*.jar")


def streams_libs(version: str = KAFKA_VERSION) -> Path:
    """Return the folder with Kafka Streams in place of the clients alone."""
    return jars("streams", version, _program("kafka-streams", version), "kafka-streams-*.jar")


def connect_libs(version: str = KAFKA_VERSION) -> Path:
    """Return the folder with Kafka Connect's workers and the connectors that read and write files."""
    return jars("connect", version, _program("connect-runtime connect-file", version), "connect-file-*.jar")


def _program(artifacts: str, version: str) -> str:
    named = [("org.apache.kafka", artifact, version) for artifact in artifacts.split()]
    named += [("com.fasterxml.jackson.core", "jackson-databind", "2.17.2"), ("org.slf4j", "slf4j-simple", "1.7.36")]
    tags = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
    return "\n".join(f"    {tags.format(*one)}" for one in named)


def javac() -> str:
    """Return the path of a Java compiler. Raises MissingTool without one."""
    found = shutil.which("javac")
    if found is None:
        raise MissingTool("no javac found, a JDK is needed (Debian: openjdk-17-jdk-headless)")
    return found


def main(versions: list[str]) -> int:
    """Fetch the jars now, so that no test waits for them: `python -m kproxy.testing.jars [VERSION …]`. Return the exit
    code.

    For the newest, what makes its brokers start sooner is made as well.
    """
    from kproxy.testing import class_archive

    for version in versions or [KAFKA_VERSION]:
        try:
            folder = kafka_libs(version)
        except InternalError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        sys.stdout.write(f"Kafka {version}: {len(list(folder.iterdir()))} jars\n")
        if version == KAFKA_VERSION:
            try:
                class_archive.make(folder)
            except (OSError, InternalError) as error:  # another kind of Java, a cache that cannot be written
                sys.stderr.write(f"brokers will start as slowly as they do: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
