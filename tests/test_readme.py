"""What the README shows is what happens: its commands are run and its transcripts compared."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.cli import main
from kproxy.testing.cluster import MockCluster
from kproxy.testing.kafka import KAFKA_VERSION

pytestmark = pytest.mark.process
README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
COMMANDS = [line for language, text in BLOCKS if not language for line in text.splitlines()]


def kproxy(words: str, folder: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kproxy", *shlex.split(words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False, **more)


def blocks(language: str, containing: str) -> str:
    """The one block of this language that holds these words."""
    (found,) = [text for name, text in BLOCKS if name == language and containing in text]
    return found


@pytest.mark.parametrize("document", [text for name, text in BLOCKS if name == "yaml"])
def test_the_rule_files_are_right(tmp_path: Path, document: str) -> None:
    """Each rule document of the README is accepted as it stands."""
    (tmp_path / "rules.yaml").write_text(document)

    ran = kproxy("check rules.yaml", tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("kproxy ")])
def test_every_command_is_one_of_kproxys(line: str) -> None:
    """Command and options are known; those that need no more than a moment are run by the other tests."""
    result = CliRunner().invoke(main, [*shlex.split(line, comments=True)[1:], "--help"])

    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("with_rules", [False, True])
def test_the_run_commands_start_and_end(tmp_path: Path, with_rules: bool) -> None:
    """Both `kproxy run` lines start in front of a cluster (at free ports), and SIGTERM ends them."""
    listed = [text for name, text in BLOCKS if not name and "kproxy run" in text and "--config" not in text]
    found = [text for text in listed if ("--rules" in text) == with_rules]
    (line,) = [line for line in "".join(found).splitlines() if line.startswith("kproxy run")]
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "shop.yaml").write_text(blocks("yaml", "kind: rename_topic"))
    with MockCluster(1) as cluster:
        line = re.sub(r"--upstream \S+", f"--upstream {cluster.bootstrap}", line)
        line = re.sub(r"--listen \S+", "", line) + " --listen 127.0.0.1:0"
        line = re.sub(r"--admin \S+", "--admin 127.0.0.1:0", line)
        assert start_and_end(line, tmp_path) == 0


def start_and_end(line: str, folder: Path) -> int:
    """Its exit code after SIGTERM."""
    words = [sys.executable, "-m", "kproxy", *shlex.split(line)[1:]]
    with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stderr is not None
        for said in process.stderr:
            if '"ready"' in said:
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    return process.returncode


def test_the_config_with_an_audit_leaves_a_record(tmp_path: Path) -> None:
    """It starts in front of a cluster, and what it did is in a file when it has ended."""
    with MockCluster(1) as cluster:
        text = blocks("yaml", "audit:").replace("broker1:9092", f'"{cluster.bootstrap}"')
        text = text.replace("0.0.0.0:9092", "127.0.0.1:0").replace("127.0.0.1:9190", "127.0.0.1:0")
        (tmp_path / "kproxy.yaml").write_text(text)
        assert start_and_end("kproxy run --config kproxy.yaml", tmp_path) == 0

    assert list(tmp_path.glob("audit/dt=*/*.ndjson.gz"))


def test_the_two_commands_are_those_of_the_makefile() -> None:
    """`make demo` and `make test` exist, and continuous integration runs the second."""
    root = README.parent
    makefile = (root / "Makefile").read_text()

    assert blocks("", "make demo").split()[:2] == ["make", "demo"]
    assert re.search(r"^demo:", makefile, re.MULTILINE) and re.search(r"^test:", makefile, re.MULTILINE)
    assert "make test" in (root / ".ci" / "run").read_text()
    assert f"tests.support.java_jars {KAFKA_VERSION} " in makefile


def test_readme_test_file_passes_as_it_stands(tmp_path: Path) -> None:
    """In an empty folder, with the command that the page names."""
    block = blocks("python", "kproxy.inject")
    name = block.splitlines()[0].removeprefix("# ")
    assert f"`pytest {name}`" in README.read_text()
    (tmp_path / name).write_text(block)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
