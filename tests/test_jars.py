"""Jars are fetched once, and what is missing for that is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.base import jars
from kproxy.base.errors import InternalError
from kproxy.lake.connector import connector_jars

pytestmark = pytest.mark.process
DEPENDENCY = "<dependency><groupId>g</groupId><artifactId>a</artifactId><version>1</version></dependency>"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no way to anywhere."""
    monkeypatch.setenv("KPROXY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(cache: Path, name: str, text: str) -> None:
    file = cache / "bin" / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_missing_tools_are_named_with_their_package(cache: Path) -> None:
    """First Java, then Maven."""
    with pytest.raises(jars.MissingTool, match=r"no java found.*openjdk-17-jdk-headless"):
        jars.jars("x", "1", DEPENDENCY, "*.jar")
    program(cache, "java", "echo 'openjdk version \"17.0.1\"' >&2")
    with pytest.raises(jars.MissingTool, match=r"no mvn found.*jars of x 1 \(Debian: maven\)"):
        jars.jars("x", "1", DEPENDENCY, "*.jar")


def test_what_could_not_be_fetched_is_told_with_mavens_words(cache: Path) -> None:
    """And nothing is left that looks like a whole folder."""
    program(cache, "java", "echo 'openjdk version \"17.0.1\"' >&2")
    program(cache, "mvn", "echo no such artifact; exit 1")
    with pytest.raises(InternalError, match="jars of x 1 could not be fetched, mvn exit code 1:\nno such artifact"):
        jars.jars("x", "1", DEPENDENCY, "*.jar")

    assert [path.name for path in (cache / "cache").iterdir() if path.is_dir()] == []


def test_a_fetch_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it begins, with where it goes, and when it is through; once."""
    told: list[str] = []
    monkeypatch.setattr(jars, "telling", [told.append])
    program(cache, "java", "echo 'openjdk version \"17.0.1\"' >&2")
    made = '/bin/mkdir -p "${one#*=}"; : > "${one#*=}/a.jar"'
    program(cache, "mvn", f'for one; do case "$one" in -DoutputDirectory=*) {made};; esac; done')
    for _ in range(2):
        folder = jars.jars("x", "1", DEPENDENCY, "*.jar")
    first, last = told
    assert first == f"kproxy: fetching the jars of x 1 with Maven into {folder}; this takes a minute or more, once"
    assert last.startswith("kproxy: fetched x 1: 0 MB in ")


def test_the_connector_comes_without_what_pyspark_has() -> None:
    """Two versions of Spark, Scala or Hadoop on one class path break each other."""
    names = sorted(path.name.rpartition("-")[0] for path in connector_jars())

    assert names == [
        "commons-pool2", "kafka-clients", "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"
    ]  # fmt: skip
