"""The clients of the matrix: how each is built from its few files under programs/, and what is known of it.

Strategy: a program is built in a copy of its folder in the cache, by its language's own tools and from its registry, so
that nothing is written into the source tree; what is newest is taken unless the manifest says otherwise.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kproxy.base.errors import InternalError
from kproxy.base.jars import MissingTool, cache_folder, java
from kproxy.testing.kafka import KAFKA_VERSION
from tests.lab.matrix.scenario import COUNT, Expected, words
from tests.support.java_jars import client_libs, connect_libs, streams_libs
from tests.support.java_program import JVM, compile_java

HERE = Path(__file__).parent / "programs"
OLD_JAVA = "2.1.1"
"""The oldest whose versions of the protocol Kafka 4 still has (KIP-896)."""

BROKERS = ["2.8.2", "3.9.1", "4.3.1", KAFKA_VERSION]


@dataclass(frozen=True)
class Client:
    """`command` builds it and says how it is run; `lacks` are the steps that the client has no means for."""

    name: str
    command: Callable[[], list[str]]
    lacks: frozenset[str] = frozenset()
    expected: Expected = field(default_factory=Expected)


def python(name: str) -> Callable[[], list[str]]:
    """A script that runs, in the folder of kproxy's sources, with what tests have installed."""
    return lambda: [sys.executable, "-m", f"tests.lab.matrix.programs.{name}.client"]


def copy(name: str) -> Path:
    """The folder of a program, in the cache; what was built there before stays."""
    folder = cache_folder() / "clients" / name
    shutil.copytree(HERE / name, folder, dirs_exist_ok=True)
    return folder


def tool_path(tool: str) -> str | None:
    """Return the path of a program; compilers are looked for where their own installers put them, too."""
    return shutil.which(tool) or shutil.which(tool, path=f"/usr/local/go/bin:{Path.home()}/.cargo/bin")


def build(tool: str, package: str, folder: Path, *arguments: str) -> None:
    """Run a tool in that folder. Raises MissingTool, and InternalError with its last lines."""
    found = tool_path(tool)
    if found is None:
        raise MissingTool(f"no {tool} found, it builds {folder.name} (Debian: {package})")
    done = subprocess.run([found, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise InternalError(
            f"{folder.name} could not be built, {tool} {arguments[0]} exit code {done.returncode}:\n{last}"
        )


def go(name: str) -> Callable[[], list[str]]:
    """A Go program, with the versions of its go.mod; beside its own files are those that Go programs share."""

    def command() -> list[str]:
        folder = copy(name)
        shutil.copytree(HERE / "go", folder, dirs_exist_ok=True)
        build("go", "golang-go", folder, "build", "-buildvcs=false", "-o", "client", ".")
        return [str(folder / "client")]

    return command


def node(name: str) -> Callable[[], list[str]]:
    """A JavaScript program."""

    def command() -> list[str]:
        folder = copy(name)
        build("npm", "npm", folder, "install", "--no-package-lock", "--no-audit", "--no-fund")
        return ["node", str(folder / "client.js")]

    return command


def rust(name: str) -> Callable[[], list[str]]:
    """A Rust program, with the versions of its Cargo.toml."""

    def command() -> list[str]:
        folder = copy(name)
        target = folder.parent / "rust-target"  # of all Rust programs, so that what both need is compiled once
        build("cargo", "cargo build-essential", folder, "build", "--release", "--quiet", "--target-dir", str(target))
        shutil.copy(target / "release" / "client", folder / "client")
        return [str(folder / "client")]

    return command


def jvm(name: str, libs: Callable[[], Path]) -> Callable[[], list[str]]:
    """A Java program against these jars."""

    def command() -> list[str]:
        folder, found = copy(name), libs()
        classes = folder / found.name
        classes.mkdir(exist_ok=True)
        compile_java(sorted(folder.glob("*.java")), found, classes)
        return [java(), *JVM, "-cp", f"{classes}:{found}/*", "Client"]

    return command


def connect() -> list[str]:
    """Connect's own main class, started by a script that writes its files."""
    return [sys.executable, str(HERE / "connect" / "client.py"), str(connect_libs())]


#: What the word count of the streams program comes to, after each step.
STREAMS = Expected(
    consume=["v=30", *(f"{number}=1" for number in range(COUNT))],
    group=["v=30", "w=30", "x=30", *(f"{number}=3" for number in range(COUNT))],
    transactions=["v=30", "w=30", "x=30", *(f"{number}=3" for number in range(COUNT))],
    transaction_committed=3 * COUNT,
    to_made=True,
)
CONNECT = Expected(consume=words("v"), group=words("w", "x"), to_made=True)

CLIENTS = {
    client.name: client
    for client in (
        Client("java", jvm("java", lambda: client_libs(KAFKA_VERSION))),
        Client("java-old", jvm("java", lambda: client_libs(OLD_JAVA))),
        Client("librdkafka", python("librdkafka")),
        Client("kafka-python", python("kafka_python")),
        Client("aiokafka", python("aiokafka")),
        Client("franz-go", go("franz_go")),
        Client("sarama", go("sarama")),
        Client("kafka-go", go("kafka_go"), lacks=frozenset({"transactions"})),
        Client("kafkajs", node("kafkajs")),
        Client("rust-rdkafka", rust("rust_rdkafka")),
        Client("rskafka", rust("rskafka"), lacks=frozenset({"group", "transactions", "brokers"})),
        Client("kafka-streams", jvm("streams", lambda: streams_libs(KAFKA_VERSION)), expected=STREAMS),
        Client("connect", connect, lacks=frozenset({"transactions"}), expected=CONNECT),
    )
}
