"""The Java kit compiles without its libraries, against stubs of the types of JUnit and Testcontainers that it uses.

`make kits` fetches the libraries, and compares the configuration of the container with Testcontainers' own classes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.lab.kits.suites import KIT_SUITES
from tests.support.java_jars import javac
from tests.support.java_program import COMPILER

pytestmark = [pytest.mark.process, pytest.mark.tools("javac")]

EXTENSION = "org.junit.jupiter.api.extension."
CONTAINERS = "org.testcontainers."
STUBS = {
    f"{EXTENSION}Extension": "interface Extension {}",
    f"{EXTENSION}ParameterContext": "interface ParameterContext { java.lang.reflect.Parameter getParameter(); }",
    f"{EXTENSION}ParameterResolver": "interface ParameterResolver extends Extension {"
    " boolean supportsParameter(ParameterContext p, ExtensionContext c);"
    " Object resolveParameter(ParameterContext p, ExtensionContext c); }",
    f"{EXTENSION}ExtensionContext": "interface ExtensionContext {"
    " java.util.Optional<ExtensionContext> getParent(); Store getStore(Namespace n);"
    " class Namespace { public static Namespace create(Object... parts) { return null; } }"
    " interface Store { interface CloseableResource { void close() throws Throwable; }"
    " <K, V> V getOrComputeIfAbsent(K key, java.util.function.Function<K, V> make, Class<V> type); } }",
    f"{CONTAINERS}utility.DockerImageName": "class DockerImageName {}",
    f"{CONTAINERS}images.builder.Transferable": "interface Transferable {"
    " static Transferable of(String text) { return null; } }",
    f"{CONTAINERS}containers.wait.strategy.WaitStrategy": "interface WaitStrategy {}",
    f"{CONTAINERS}containers.wait.strategy.Wait": "class Wait {"
    " public static HttpWaitStrategy forHttp(String path) { return null; } }",
    f"{CONTAINERS}containers.wait.strategy.HttpWaitStrategy": "class HttpWaitStrategy implements WaitStrategy {"
    " public HttpWaitStrategy forPort(int port) { return this; } }",
    f"{CONTAINERS}containers.GenericContainer": "class GenericContainer<S extends GenericContainer<S>>"
    " implements AutoCloseable { public GenericContainer(org.testcontainers.utility.DockerImageName image) {}"
    " public S withCommand(String... parts) { return null; }"
    " public S withEnv(String key, String value) { return null; }"
    " public S withExposedPorts(Integer... ports) { return null; }"
    " public S waitingFor(org.testcontainers.containers.wait.strategy.WaitStrategy strategy) { return null; }"
    " public S withCopyToContainer(org.testcontainers.images.builder.Transferable data, String path) { return null; }"
    " protected void configure() {} protected void containerIsCreated(String id) {}"
    " protected void addFixedExposedPort(int outside, int inside) {}"
    " public String getHost() { return null; } public Integer getMappedPort(int port) { return null; }"
    " public void start() {} public void stop() {} public void close() {} }",
}  # fmt: skip


def test_java_kits_compile_for_java_17(tmp_path: Path) -> None:
    """Without warnings."""
    stubs = []
    for name, text in STUBS.items():
        stubs.append(tmp_path / f"{name.replace('.', '/')}.java")
        stubs[-1].parent.mkdir(parents=True, exist_ok=True)
        stubs[-1].write_text(f"package {name.rpartition('.')[0]}; public {text}\n")
    options = [*COMPILER[:2], "-Xlint:all,-serial", "-Werror", "--release", "17", "-proc:none"]
    sources = map(str, [*KIT_SUITES["java"].code(), *stubs])
    command = [javac(), *options, "-d", str(tmp_path / "classes"), *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert done.returncode == 0, done.stderr
    for name in ("KproxyExtension", "testcontainers/KproxyContainer"):
        assert (tmp_path / "classes" / "kproxy" / f"{name}.class").exists()
