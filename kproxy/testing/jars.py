"""Apache Kafka's published jars, and the archive of what a JVM has loaded from them.

Strategy: two artifacts and a logger that writes to standard error are named; `kproxy.base.jars` fetches and keeps them.

Most of what a broker computes while it starts is the loading of some ten thousand classes. Java can write down what it
has loaded when it ends, and take that over at the next start (class data sharing, JEP 350): a broker then starts with
half of the work. kproxy's `make jars` has one broker start and end for that. Where the archive is missing nothing is
lost but time; Java itself passes over one that was made by another Java, or from other jars.
"""

from __future__ import annotations

import os
from pathlib import Path

from kproxy.base.jars import jars, java

#: The newest version of which both artifacts below could be fetched whole.
KAFKA_VERSION = "4.3.1"

_DEPENDENCIES = """\
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>"""


def kafka_libs(version: str = KAFKA_VERSION) -> Path:
    """Return the folder that holds the jars of Kafka's broker, clients and tools in `version`; see
    `kproxy.base.jars.jars`."""
    return jars("kafka", version, _DEPENDENCIES.format(version=version), "kafka-clients-*.jar")


def class_archive(libs: Path) -> Path:
    """Return the path of the archive for this folder of jars and this Java, whether it exists or not."""
    home = Path(os.path.realpath(java())).parent.parent
    built = (home / "release").stat() if (home / "release").exists() else home.stat()
    return libs.with_name(f"{libs.name}-{built.st_size:x}-{int(built.st_mtime):x}.jsa")


def archive_options(libs: Path) -> tuple[str, ...]:
    """Return the options of a JVM whose class path begins with all jars of `libs`; none when there is no archive."""
    file = class_archive(libs)
    return (f"-XX:SharedArchiveFile={file}", "-Xlog:disable") if file.exists() else ()
