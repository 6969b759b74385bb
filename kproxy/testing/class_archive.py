"""Kafka's classes as a JVM has read and checked them, kept in a file that later JVMs map into memory.

Strategy: most of what a broker computes while it starts is the loading of some ten thousand classes. Java can write
down what it has loaded when it ends, and take that over at the next start (class data sharing, JEP 350): a broker then
starts with half of the work. `make jars` has one broker start and end for that. Where the file is missing nothing is
lost but time; Java itself passes over one that was made by another Java, or from other jars.
"""

from __future__ import annotations

import os
from pathlib import Path

from kproxy.jars import java


def archive(libs: Path) -> Path:
    """Return the path of the archive for this folder of jars and this Java, whether it exists or not."""
    home = Path(os.path.realpath(java())).parent.parent
    built = (home / "release").stat() if (home / "release").exists() else home.stat()
    return libs.with_name(f"{libs.name}-{built.st_size:x}-{int(built.st_mtime):x}.jsa")


def options(libs: Path) -> tuple[str, ...]:
    """Return the options of a JVM whose class path begins with all jars of `libs`; none when there is no archive."""
    file = archive(libs)
    return (f"-XX:SharedArchiveFile={file}", "-Xlog:disable") if file.exists() else ()


def make(libs: Path) -> Path:
    """Have a broker start and end, and keep the classes that it has loaded. Return the archive's path. Raises
    InternalError and OSError as Kafka does when it does not start."""
    from kproxy.testing.kafka import JVM, Kafka

    file = archive(libs)
    if not file.exists():
        new = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            with Kafka(1, jvm=(*JVM, f"-XX:ArchiveClassesAtExit={new}", "-Xlog:disable")) as kafka:
                kafka.stop_broker(1)
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)
    return file
