"""The Java kit compiles, where there is a compiler: against the few types of JUnit that it uses, written here, since
JUnit itself is only fetched by `make kits`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.lab.kits.suites import KIT_SUITES
from tests.support.java_jars import javac
from tests.support.java_program import COMPILER

pytestmark = [pytest.mark.process, pytest.mark.tools("javac")]

JUNIT = {
    "Extension": "interface Extension {}",
    "AfterEachCallback": "interface AfterEachCallback extends Extension {"
    " void afterEach(ExtensionContext c) throws Exception; }",
    "ParameterContext": "interface ParameterContext { java.lang.reflect.Parameter getParameter(); }",
    "ParameterResolver": "interface ParameterResolver extends Extension {"
    " boolean supportsParameter(ParameterContext p, ExtensionContext c);"
    " Object resolveParameter(ParameterContext p, ExtensionContext c); }",
    "ExtensionContext": "interface ExtensionContext {"
    " java.util.Optional<ExtensionContext> getParent(); Store getStore(Namespace n);"
    " class Namespace { public static Namespace create(Object... parts) { return null; } }"
    " interface Store { interface CloseableResource { void close() throws Throwable; }"
    " <K, V> V getOrComputeIfAbsent(K key, java.util.function.Function<K, V> make, Class<V> type);"
    " <V> V remove(Object key, Class<V> type); } }",
}  # fmt: skip


def test_the_java_kit_compiles(tmp_path: Path) -> None:
    """Without a warning, for Java 17."""
    stubs = tmp_path / "org" / "junit" / "jupiter" / "api" / "extension"
    stubs.mkdir(parents=True)
    for name, text in JUNIT.items():
        (stubs / f"{name}.java").write_text(f"package org.junit.jupiter.api.extension; public {text}\n")
    options = [*COMPILER[:2], "-Xlint:all,-serial", "-Werror", "--release", "17", "-proc:none"]
    sources = [*map(str, KIT_SUITES["java"].code()), *map(str, stubs.glob("*.java"))]
    command = [javac(), *options, "-d", str(tmp_path / "classes"), *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "classes" / "kproxy" / "KproxyExtension.class").exists()
