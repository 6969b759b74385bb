"""A release: the version comes from the tag, and what is built can be installed where nothing else is.

By default the wheel is unpacked without what it needs, and run with this environment's; with KPROXY_TEST_ALL=1 it is
installed in an empty virtual environment, with all of it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from fnmatch import fnmatch
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.built_programs import find_program

pytestmark = pytest.mark.process
ROOT = Path(__file__).parent.parent
VERSION = "98.76.5"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IN_THE_TREE = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".git_archival.txt", ".gitattributes",
               ".gitignore", "kproxy", "rules")  # fmt: skip
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "SETUPTOOLS_SCM"))},
    "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CEILING_DIRECTORIES": "/",
}  # fmt: skip


def call(*words: str | Path, cwd: Path, **more: str) -> str:
    """Standard output of a command that has to succeed."""
    done = subprocess.run(words, cwd=cwd, env={**ENVIRONMENT, **more}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(what: str, source: Path, target: Path) -> Path:
    """The `sdist` or `wheel` of a source tree, as pip has hatchling build it."""
    program = f"import sys, hatchling.build; print(hatchling.build.build_{what}(sys.argv[1]))"
    return target / call(sys.executable, "-c", program, target, cwd=source).splitlines()[-1]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a release is made of, in a folder without git."""
    folder = tmp_path_factory.mktemp("release") / "tree"
    folder.mkdir()
    for name in IN_THE_TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def built(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of a tagged commit, and the wheel that was made of that sdist."""
    target, source = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("repository") / "kproxy"
    shutil.copytree(tree, source)
    call("git", "init", "-q", cwd=source)
    call("git", "add", "-A", cwd=source)
    call("git", "commit", "-q", "-m", "all", cwd=source)
    for tag in (f"v{VERSION}", f"clients/go/v{VERSION}"):
        call("git", "tag", tag, cwd=source)
    sdist = build("sdist", source, target)
    with tarfile.open(sdist) as archive:
        archive.extractall(target, filter="data")
    return sdist, build("wheel", target / sdist.name.removesuffix(".tar.gz"), target)


def test_the_version_is_that_of_the_tag(built: tuple[Path, Path]) -> None:
    """In the names and in the metadata of both, though the sdist has no git any more."""
    sdist, wheel = built
    assert sdist.name == f"kproxy_kafka-{VERSION}.tar.gz"
    assert wheel.name == f"kproxy_kafka-{VERSION}-py3-none-any.whl"
    assert metadata(wheel)["Version"] == VERSION
    page = (ROOT / "docs" / "install.md").read_text()
    assert {match for match in re.findall(r"dist/(\S+\*\.whl)", page) if not fnmatch(wheel.name, match)} == set()


def test_a_folder_without_git_is_built_as_version_0(tree: Path) -> None:
    """Nothing says which version it is; it can be installed all the same, and be told."""
    program = "from hatchling.metadata.core import ProjectMetadata as P\n"
    program += "from hatchling.plugin.manager import PluginManager as M\n"
    program += "print(P('.', M()).version)"
    assert call(sys.executable, "-c", program, cwd=tree).strip() == "0.0.0"
    told = call(sys.executable, "-c", program, cwd=tree, SETUPTOOLS_SCM_PRETEND_VERSION="1.2.3")
    assert told.strip() == "1.2.3"


def metadata(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"kproxy_kafka-{VERSION}.dist-info/METADATA").decode())


def test_the_metadata_says_what_it_is_and_needs(built: tuple[Path, Path]) -> None:
    """Licence, Python, dependencies, extras, the page that a registry shows, and the command."""
    found = metadata(built[1])
    needed = {line.partition(";")[0].strip() for line in found.get_all("Requires-Dist") if "extra ==" not in line}

    assert found["Name"] == "kproxy-kafka"
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Requires-Python"] == PROJECT["requires-python"]
    assert {name(one) for one in needed} == {name(one) for one in PROJECT["dependencies"]}
    assert set(found.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert found.get_payload().startswith("# kproxy\n")
    with zipfile.ZipFile(built[1]) as archive:
        entries = archive.read(f"kproxy_kafka-{VERSION}.dist-info/entry_points.txt").decode()
        assert f"kproxy_kafka-{VERSION}.dist-info/licenses/LICENSE" in archive.namelist()
    assert "kproxy = kproxy.cli.start:start" in entries
    assert "kproxy = kproxy.testing.pytest_plugin" in entries


def name(requirement: str) -> str:
    """Of a package, without its versions and extras."""
    return requirement.translate(str.maketrans(dict.fromkeys("<>=!~[", " "))).split()[0].lower()


def test_the_wheel_has_all_of_kproxy_and_nothing_else(tree: Path, built: tuple[Path, Path]) -> None:
    """The protocol as data, templates and tables among it; no tests, no bytecode."""
    with zipfile.ZipFile(built[1]) as archive:
        packed = {one for one in archive.namelist() if not one.startswith(f"kproxy_kafka-{VERSION}.dist-info/")}
    files = {str(path.relative_to(tree)) for path in (tree / "kproxy").rglob("*") if path.is_file()}

    assert packed - files == {"kproxy/examples/demo.yaml"}
    assert files - packed == set()
    assert any(one.endswith("messages/000_produce.yaml") for one in packed)


def test_the_sdist_has_what_the_wheel_is_made_of(tree: Path, built: tuple[Path, Path]) -> None:
    """And what people look for in it."""
    with tarfile.open(built[0]) as archive:
        packed = {one.partition("/")[2] for one in archive.getnames()}

    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", "rules/demo.yaml"} <= packed
    assert {str(path.relative_to(tree)) for path in (tree / "kproxy").rglob("*.py")} <= packed


def test_what_was_installed_runs(built: tuple[Path, Path], tmp_path: Path) -> None:
    """It tells its version, and checks a rule file, from where it was installed."""
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{name: slow, kind: delay, delay: 1ms}]\n")
    python, path = installed(built[1], tmp_path)

    def kproxy(*words: str | Path) -> str:
        program = "import sys; from kproxy.cli.start import start; sys.argv[0] = 'kproxy'; start()"
        return call(python, "-c", program, *words, cwd=tmp_path, PYTHONPATH=path)

    assert kproxy("--version") == f"kproxy {VERSION}\n"
    assert kproxy("check", rules).endswith("1 rule, no warnings\n")
    assert "FindCoordinator Request (Version: 0) => key" in kproxy("protocol", "FindCoordinator", "0")
    where = call(python, "-c", "import kproxy; print(kproxy.__file__)", cwd=tmp_path, PYTHONPATH=path)
    assert where.startswith(f"{tmp_path}/")


@pytest.fixture
def index(built: tuple[Path, Path], tmp_path: Path) -> Iterator[str]:
    """The URL of a package index on this machine, with the wheel."""
    folder = tmp_path / "index" / PROJECT["name"]
    folder.mkdir(parents=True)
    shutil.copy(built[1], folder)
    (folder / "index.html").write_text(f'<a href="{built[1].name}">{built[1].name}</a>')
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / "index")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.deep  # fetches the dependencies
@pytest.mark.parametrize(
    ("line", "version"),
    [
        pytest.param("uv tool install .", "0.0.0", marks=pytest.mark.tools("uv")),
        pytest.param("pipx install .", "0.0.0", marks=pytest.mark.tools("pipx")),
        pytest.param("uv tool install kproxy-kafka", VERSION, marks=pytest.mark.tools("uv")),
        pytest.param("pipx install kproxy-kafka", VERSION, marks=pytest.mark.tools("pipx")),
    ],
)
def test_install_line_of_the_page_gives_the_command(
    line: str, version: str, tree: Path, index: str, tmp_path: Path
) -> None:
    """From a checkout, or from an index that has the wheel."""
    assert f"\n{line}\n" in (ROOT / "docs" / "install.md").read_text()
    tool, *words = line.split()
    program = find_program(tool)
    assert program is not None
    folders = ("UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "UV_CACHE_DIR", "PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR")
    environment = {name: str(tmp_path / name) for name in folders}
    python = {"UV_PYTHON": sys.executable, "PIPX_DEFAULT_PYTHON": sys.executable}
    call(program, *words, cwd=tree, UV_INDEX=index, PIP_EXTRA_INDEX_URL=index, **environment, **python)

    command = tmp_path / ("UV_TOOL_BIN_DIR" if tool == "uv" else "PIPX_BIN_DIR") / "kproxy"
    assert call(command, "--version", cwd=tmp_path) == f"kproxy {version}\n"


def installed(wheel: Path, folder: Path) -> tuple[Path, str]:
    """A Python that has the wheel, and its PYTHONPATH."""
    pip = ("-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile")
    if "KPROXY_TEST_ALL" in os.environ:
        python = folder / "venv" / "bin" / "python"
        call(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
        call(python, *pip, "-c", ROOT / "constraints.txt", wheel, cwd=folder)
        return python, ""
    call(sys.executable, *pip, "--no-deps", "--no-index", "--target", folder / "site", wheel, cwd=folder)
    return Path(sys.executable), str(folder / "site")
