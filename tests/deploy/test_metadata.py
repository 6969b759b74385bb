"""Metadata for catalogs: annotations and README of the chart, the file of its repository, the shared dashboard."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.helm import BROKERS, CHART, FOLDER, helm, rendered

ROOT = Path(__file__).parents[2]
META: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
README = (CHART / "README.md").read_text()


def load(path: str) -> Any:
    """Import a script of the repository."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def annotations_of(chart: dict[str, Any]) -> dict[str, str]:
    """Return Artifact Hub's annotations, which are all text."""
    notes = {name.removeprefix("artifacthub.io/"): value for name, value in chart["annotations"].items()}
    assert all(isinstance(value, str) for value in notes.values())
    return notes


def test_chart_has_metadata_for_catalogs() -> None:
    """The category is in Artifact Hub's list, and the icon is the page's, as a URL that needs no server."""
    assert annotations_of(META) == {"category": "streaming-messaging", "license": "Apache-2.0"}
    kind, _, data = META["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert b64decode(data) == (ROOT / "kproxy" / "admin" / "page" / "icon.svg").read_bytes()
    assert all(one["name"] for one in META["maintainers"]) and len(META["keywords"]) > 3


def test_release_annotations_parse_and_agree_with_their_sources(tmp_path: Path) -> None:
    """The command of `make chart` adds the image of the version, and the changes, to a copy of the chart."""
    for name in ("Chart.yaml", "values.yaml"):
        (tmp_path / name).write_text((CHART / name).read_text())
    command = [sys.executable, str(ROOT / "docs" / "chart_metadata.py"), str(tmp_path)]
    done = subprocess.run([*command, "9.8.7"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    chart, values = (yaml.safe_load((tmp_path / name).read_text()) for name in ("Chart.yaml", "values.yaml"))

    notes = annotations_of(chart)
    assert set(notes) == {"category", "license", "images", "changes"}
    assert yaml.safe_load(notes["images"]) == [{"name": "kproxy", "image": f"{values['image']['repository']}:9.8.7"}]
    changes = yaml.safe_load(notes["changes"])
    assert {one["kind"] for one in changes} <= {"added", "changed", "deprecated", "removed", "fixed", "security"}
    assert [one for one in changes if re.search(r"[`*]|\]\(", one["description"])] == []
    entries = re.findall(r"^- \*\*(.+?)\*\*", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert [one["description"].partition(".")[0] + "." for one in changes] == entries
    assert chart | {"annotations": META["annotations"]} == META

    (tmp_path / "values.yaml").write_text("image: {}\n")
    for words, error in (([str(tmp_path), "1.0.0"], "expected image.repository, got none (at values.yaml)\n"),
                         ([], "expected CHART and VERSION, for example dist/chart/kproxy 1.2.3\n")):  # fmt: skip
        failed = subprocess.run([*command[:2], *words], check=False, capture_output=True, text=True)
        assert (failed.returncode, failed.stderr) == (1, error)


CHANGELOG = """# Changelog
## [Unreleased]
### Added
- **New.** A [thing](docs/x.md#y)
  over `two` lines.
## [0.2.0] - 2026-01-01
### Fixed
- A hole: "quoted", 50 %.
### Security
- One more.
"""


def test_changes_are_those_of_the_version_or_unreleased() -> None:
    changes = load("docs/chart_metadata.py").changes
    assert changes(CHANGELOG, "0.3.0") == [{"kind": "added", "description": "New. A thing over two lines."}]
    assert changes(CHANGELOG, "0.2.0") == [
        {"kind": "fixed", "description": 'A hole: "quoted", 50 %.'}, {"kind": "security", "description": "One more."},
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"expected one of added, .*, got 'Misc' \(at CHANGELOG\.md\)"):
        changes("## [1.0.0]\n### Misc\n- x\n", "1.0.0")
    with pytest.raises(ValueError, match=r"expected entries of 1\.0\.0 or Unreleased, got none"):
        changes("# Changelog\n", "1.0.0")


def test_artifact_hub_repository_file_ignores_pre_releases() -> None:
    """Keys as in Artifact Hub's example of the file. Ids and owners follow from a registration, so there are none."""
    document = yaml.safe_load((FOLDER / "artifacthub-repo.yml").read_text())
    (ignored,) = document["ignore"]
    assert set(document) <= {"repositoryID", "owners", "ignore"}
    assert ignored["name"] == META["name"]
    versions = ("0.1.0", "1.20.3", "0.2.0-rc.1", "1.0.0-dev.3")
    assert [bool(re.search(ignored["version"], one)) for one in versions] == [False, False, True, True]


def test_chart_readme_commands_are_those_of_the_page() -> None:
    """With another name for the chart. The README has no links: catalogs show it without the repository."""
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    (commands,) = re.findall(r"^```\n(kubectl .*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert commands.replace(" CHART ", " deploy/helm/kproxy ") in page
    assert not re.search(r"\]\(", README)
    assert f"requires Kubernetes {META['kubeVersion'].removeprefix('>=').removesuffix('.0-0')}," in README


@pytest.mark.tools("helm")
def test_chart_with_the_readme_values_is_valid() -> None:
    """Helm's own check finds nothing wrong, not even missing metadata."""
    (values,) = re.findall(r"^```yaml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    objects = rendered(values=yaml.safe_load(values))
    assert {"StatefulSet", "ConfigMap", "Service"} <= {one["kind"] for one in objects}
    linted = helm("lint", "--strict", str(CHART), "--values", "-", stdin=json.dumps(BROKERS))
    assert linted.returncode == 0, linted.stdout
    assert "[INFO]" not in linted.stdout


def test_shared_dashboard_names_inputs_and_plugins(tmp_path: Path) -> None:
    """The command's file: no id, a data source that is asked for, and the plugin of each panel."""
    file = tmp_path / "new" / "dashboard.json"
    command = [sys.executable, str(ROOT / "tools" / "dashboard.py"), str(file)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"{file}\n"
    made, source = json.loads(file.read_text()), json.loads((ROOT / "deploy/grafana/kproxy.json").read_text())

    (asked,) = made["__inputs"]
    assert (asked["name"], asked["type"], asked["pluginId"]) == ("DS_PROMETHEUS", "datasource", "prometheus")
    required = {(one["type"], one["id"]) for one in made["__requires"]}
    assert required == {("grafana", "grafana"), ("datasource", "prometheus")} | {
        ("panel", panel["type"]) for panel in made["panels"]
    }
    assert made["id"] is None and made["uid"] == source["uid"]
    texts = json.dumps(made)
    assert "${source}" not in texts and texts.count("${DS_PROMETHEUS}") == json.dumps(source).count("${source}")
    defined = {one["name"] for one in made["templating"]["list"]} | {"DS_PROMETHEUS", "__all", "__rate_interval"}
    used = {one or other for one, other in re.findall(r"\$(?:\{(\w+)\}|(\w+))", texts)}
    assert used <= defined
    assert [panel["title"] for panel in made["panels"]] == [panel["title"] for panel in source["panels"]]


def test_shared_dashboard_of_unknown_panels_is_refused() -> None:
    shared = load("tools/dashboard.py").shared
    nested = {"type": "row", "panels": [{"type": "geomap"}]}
    with pytest.raises(ValueError, match=r"expected panels of barchart, .*, got geomap \(at .*kproxy\.json\)"):
        shared({"panels": [nested], "templating": {"list": []}})
