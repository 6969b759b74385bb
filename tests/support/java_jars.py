"""Jars of Kafka for other programs than brokers, and the command that fetches all that tests need before they run."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from kproxy.base.errors import InternalError
from kproxy.base.jars import MissingTool, jars
from kproxy.testing.kafka import JVM, KAFKA_VERSION, Kafka, class_archive, kafka_libs


def client_libs(version: str = KAFKA_VERSION) -> Path:
    """Return the folder with Kafka's Java clients alone, of `version`, and with the libraries for JSON and for logs to
    standard error."""
    return jars("clients", version, _program("kafka-clients", version), "kafka-clients-*.jar")


def streams_libs(version: str = KAFKA_VERSION) -> Path:
    """Return the folder with Kafka Streams in place of the clients alone."""
    return jars("streams", version, _program("kafka-streams", version), "kafka-streams-*.jar")


def connect_libs(version: str = "4.3.1") -> Path:
    """Return the folder with Kafka Connect's workers and the connectors that read and write files.

    Kafka 4.4.0 was published without connect-file.
    """
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


def make_class_archive(libs: Path) -> Path:
    """Have a broker start and end, and keep the classes that it has loaded. Return the archive's path. Raises
    InternalError and OSError as Kafka does when it does not start."""
    file = class_archive(libs)
    if not file.exists():
        new = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            with Kafka(1, jvm=(*JVM, f"-XX:ArchiveClassesAtExit={new}", "-Xlog:disable")) as kafka:
                kafka.stop_broker(1)
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)
    return file


def main(versions: list[str]) -> int:
    """Fetch the jars now, so that no test waits for them: `python -m tests.support.java_jars [VERSION …]`. Return the
    exit code.

    For the newest, what makes its brokers start sooner is made as well.
    """
    for version in versions or [KAFKA_VERSION]:
        try:
            folder = kafka_libs(version)
        except InternalError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        sys.stdout.write(f"Kafka {version}: {len(list(folder.iterdir()))} jars\n")
        if version == KAFKA_VERSION:
            try:
                make_class_archive(folder)
            except (OSError, InternalError) as error:  # another kind of Java, a cache that cannot be written
                sys.stderr.write(f"brokers will start as slowly as they do: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
