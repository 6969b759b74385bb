"""Jars of Spark's Kafka connector, which PySpark does not include.

The connector depends on Spark itself, Hadoop, Scala and compression libraries. PySpark has its own versions of these,
and two versions on one class path conflict. They are excluded, which leaves four jars.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kproxy.base.errors import InternalError
from kproxy.base.jars import jars

CONNECTOR_VERSION = "4.0.0"
"""The newest complete release that could be fetched; works with every PySpark 4.0."""

_LEFT_OUT = (
    ("org.apache.spark", "spark-sql_2.13"),
    ("org.apache.spark", "spark-core_2.13"),
    ("org.apache.spark", "spark-tags_2.13"),
    ("org.apache.hadoop", "*"),
    ("org.scala-lang", "*"),
    ("org.scala-lang.modules", "*"),
    ("com.google.code.findbugs", "jsr305"),
    ("org.lz4", "*"),
    ("org.xerial.snappy", "*"),
    ("com.github.luben", "*"),
    ("org.slf4j", "*"),
)
_EXCLUSION = "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>"
_DEPENDENCY = """\
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{version}</version>
      <exclusions>{exclusions}</exclusions>
    </dependency>"""


def connector_jars() -> list[Path]:
    """Return the jars of the connector, the Kafka client and their other dependencies; fetched at the first call."""
    exclusions = "".join(_EXCLUSION.format(*one) for one in _LEFT_OUT)
    dependency = _DEPENDENCY.format(version=CONNECTOR_VERSION, exclusions=exclusions)
    return sorted(jars("spark-kafka", CONNECTOR_VERSION, dependency, "spark-sql-kafka-*.jar").glob("*.jar"))


def main() -> int:
    """Fetch the jars, print the argument of `spark-submit --jars`, and return the exit code.

    Called by `python -m kproxy.lake.connector`.
    """
    try:
        sys.stdout.write(",".join(map(str, connector_jars())) + "\n")
    except InternalError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
