"""The repository's URL: `make home` writes it into every file that contains it, and no file has another one."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

ROOT = Path(__file__).parent.parent
FOLDERS = ("clients", "deploy", "docs", "tools")
FILES = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "Makefile", "README.md", "SECURITY.md", "pyproject.toml", "mkdocs.yml")
TOOL: Any = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "home.py")))
ONE, OTHER = "https://github.com/Acme-1/KafkaProxy", "https://gitlab.com/other/kproxy"
IGNORED = shutil.ignore_patterns(
    "node_modules", "target", "__pycache__", "*.svg", "*.png", "*.html", "events", "decisions"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of all files that contain the URL, without a home."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=IGNORED)
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    write(tmp_path, None)
    return tmp_path


def write(tree: Path, url: str | None) -> dict[str, str]:
    """Set the home of a tree. Return the files that changed."""
    texts = TOOL.derived(tree, TOOL.Home.parse(url) if url else None)
    changed = {path: text for path, text in texts.items() if path.read_text() != text}
    for path, text in changed.items():
        path.write_text(text)
    return {str(path.relative_to(tree)): text for path, text in changed.items()}


def texts_of(tree: Path) -> dict[str, str]:
    found = {}
    for path in sorted(tree.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(tree))] = path.read_text()
    return found


def test_files_of_the_repository_are_those_of_its_home() -> None:
    home = TOOL.read_home(ROOT)
    assert [path for path, text in TOOL.derived(ROOT, home).items() if path.read_text() != text] == []


def test_home_absent_leaves_no_url_and_no_placeholder(tree: Path) -> None:
    """Links to other projects stay."""
    own = re.compile(r"(?i)(?:github|gitlab|codeberg|bitbucket)\.\w+[:/]+[\w.<>{}$-]+/[\w.-]*kproxy")
    placeholder = re.compile(r"(?i)your[-_](?:org|name|repo|user)\b|<(?:owner|org|user|repo)>|\bTODO\b|\bFIXME\b")
    for name, text in texts_of(tree).items():
        assert (name, own.findall(text), placeholder.findall(text)) == (name, [], [])
    project = tomllib.loads((tree / "pyproject.toml").read_text())
    assert "urls" not in project["project"] and "kproxy" not in project["tool"]
    assert "home" not in yaml.safe_load((tree / "deploy/helm/kproxy/Chart.yaml").read_text())


def test_home_changed_changes_every_derived_place(tree: Path) -> None:
    """The same files for each URL, none with the previous one, and the first text without a URL."""
    before = texts_of(tree)
    first, second = write(tree, ONE), write(tree, OTHER)

    assert first.keys() == second.keys() >= {
        "CHANGELOG.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "clients/go/go.mod", "clients/java/pom.xml",
        "clients/java/testcontainers/pom.xml", "clients/python/pyproject.toml",
        "clients/typescript/package.json", "deploy/helm/kproxy/Chart.yaml", "deploy/helm/kproxy/values.yaml",
        "docs/ci.md", "pyproject.toml",
    }  # fmt: skip
    assert [name for name, text in first.items() if "acme-1" not in text.lower()] == []
    assert [name for name, text in texts_of(tree).items() if re.search("(?i)acme-1|KafkaProxy", text)] == []
    assert TOOL.read_home(tree).url == OTHER
    assert write(tree, OTHER) == {}
    write(tree, None)
    assert texts_of(tree) == before


def test_home_is_read_back_by_each_format(tree: Path) -> None:
    write(tree, ONE + ".git")
    project = tomllib.loads((tree / "pyproject.toml").read_text())
    pom = ET.parse(tree / "clients/java/pom.xml").getroot()
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    chart = yaml.safe_load((tree / "deploy/helm/kproxy/Chart.yaml").read_text())
    package = json.loads((tree / "clients/typescript/package.json").read_text())
    site = "https://acme-1.github.io/KafkaProxy/"

    assert project["tool"]["kproxy"]["home"] == project["project"]["urls"]["Source"] == ONE
    assert project["project"]["urls"]["Documentation"] == chart["home"] == package["homepage"] == site
    assert chart["sources"] == [ONE]
    assert yaml.safe_load((tree / "deploy/helm/kproxy/values.yaml").read_text())["image"]["repository"] == (
        "ghcr.io/acme-1/kafkaproxy"
    )
    manifests = "".join(path.read_text() for path in (tree / "deploy").glob("ku*/**/*.yaml"))
    assert set(re.findall(r"image: (.*k.*proxy.*)", manifests)) == {"ghcr.io/acme-1/kafkaproxy:0.1.0"}
    assert "> images: [{name: ghcr.io/acme-1/kafkaproxy, newName" in (tree / "docs/kubernetes.md").read_text()
    assert package["repository"]["url"] == f"git+{ONE}.git"
    assert pom.findtext("m:groupId", None, space) == "io.github.acme-1"
    assert pom.findtext("m:scm/m:connection", None, space) == f"scm:git:{ONE}.git"
    assert (tree / "clients/go/go.mod").read_text().startswith("module github.com/Acme-1/KafkaProxy/clients/go\n")
    assert '"kproxykit"' not in "".join(path.read_text() for path in (tree / "clients/go").rglob("*.go"))
    assert f"({ONE}/security/advisories/new)" in (tree / "SECURITY.md").read_text()
    version = chart["version"]
    page = (tree / "docs/ci.md").read_text()
    assert page.count(f"      - uses: Acme-1/KafkaProxy@v{version}\n") == 2
    assert f"  - repo: {ONE}\n    rev: v{version}\n" in page


def test_readme_of_the_package_has_absolute_links(tree: Path) -> None:
    """Package indexes show it without the repository. The plugin applies these substitutions to each build."""
    write(tree, ONE)
    project = tomllib.loads((tree / "pyproject.toml").read_text())
    plugin = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (tree / "README.md").read_text()
    for one in plugin["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)

    assert plugin["fragments"] == [{"path": "README.md"}]
    assert "readme" in project["project"]["dynamic"] and "readme" not in project["project"]
    assert any(one.startswith("hatch-fancy-pypi-readme>=") for one in project["build-system"]["requires"])
    assert f"]({ONE}/blob/main/docs/install.md)" in text and f'src="{ONE}/raw/main/docs/view-light.png"' in text
    assert re.findall(r"\]\((?!https://)\S+|src(?:set)?=\"(?!https://)\S+", text) == []


def test_site_has_addresses_of_project_urls(tree: Path) -> None:
    """A link to a file that is not a page leads to the repository."""
    link = "[A file](../deploy/compose.yaml)"
    absent = SimpleNamespace(site_url=None, repo_url=None, repo_name=None)
    hooks: Any = SimpleNamespace(**runpy.run_path(str(tree / "docs" / "site_hooks.py")))
    assert vars(hooks.on_config(SimpleNamespace(**vars(absent)))) == vars(absent)
    assert hooks.for_site(link, "deploy.md") == "A file"

    write(tree, ONE)
    hooks = SimpleNamespace(**runpy.run_path(str(tree / "docs" / "site_hooks.py")))
    config = hooks.on_config(SimpleNamespace(**vars(absent)))
    assert vars(config) == {
        "site_url": "https://acme-1.github.io/KafkaProxy/", "repo_url": ONE, "repo_name": "KafkaProxy",
    }  # fmt: skip
    assert hooks.for_site(link, "deploy.md") == f"[A file]({ONE}/blob/main/deploy/compose.yaml)"


@pytest.mark.parametrize(
    "url",
    ["", "github.com/a/b", "http://github.com/a/b", "https://github.com/a", "https://github.com/a/b/c", "https://a/b/c",
     "https://github.com/a/..", "https://github.com/a/b?x", "https://github.com/a/b$(id)", "https://github.com/-a/b",
     "https://u:p@github.com/a/b", "https://github.com/a b/c", 'https://github.com/a"/c', "https://github.com/a/b\n",
     "https://github.com/a\u0435/b", "https://github.com/a/b\u0662"],
)  # fmt: skip
def test_home_rejects_text_that_is_not_a_repository(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected https://HOST/OWNER/NAME, got .* \(at URL\)"):
        TOOL.Home.parse(url)


@pytest.mark.parametrize(
    ("url", "group", "image"),
    [
        ("https://git.acme.example/Team/kproxy/", "example.acme.git.team", "kproxy"),
        (OTHER, "io.gitlab.other", "registry.gitlab.com/other/kproxy"),
        ("https://gitlab.com/acme/data/kproxy", "io.gitlab.acme", "registry.gitlab.com/acme/data/kproxy"),
    ],
)
def test_home_of_other_hosts_follows_their_rules(url: str, group: str, image: str) -> None:
    """A host without known services has no registry and no site."""
    home = TOOL.Home.parse(url)
    assert (home.group, home.image) == (group, image)
    assert home.url == url.removesuffix("/")


@pytest.mark.process
def test_make_home_prints_changed_files_and_errors(tree: Path) -> None:
    def make(url: str) -> tuple[int, str, str]:
        command = ["make", "-s", "--no-print-directory", "home", f"URL={url}"]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    code, printed, _ = make(ONE)
    assert (code, "pyproject.toml" in printed.splitlines()) == (0, True)
    assert make(ONE) == (0, "", "")
    code, printed, error = make("ftp://a/b/c")
    assert (code != 0, printed) == (True, "")
    assert "expected https://HOST/OWNER/NAME, got 'ftp://a/b/c' (at URL)" in error
    assert make("none")[0] == 0
    assert "tool.kproxy" not in (tree / "pyproject.toml").read_text()
