"""The pages of managed services: their configs, manifests and profiles are valid, and each has the same parts."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from kproxy.cli.check import check
from kproxy.testing.cluster import MockCluster
from tests.howto import DOCS, Reader, blocks
from tests.support import manifests, service_profiles
from tests.support.helm import CHART, FOLDER

DEPLOY = DOCS.parent / "deploy"
PAGES = sorted(path.name for path in (DOCS / "services").glob("*.md") if path.name != "index.md")
PARTS = ["Login", "Ports", "Differences", "Not tested", "Sources"]
FILES = re.compile(r"[\w./-]+\.(?:crt|key|pem|cert|jwt|txt)\b")


def documents(page: str) -> dict[str, str]:
    """Return the YAML documents of a page by the file names in their first lines."""
    texts = [text for language, text in blocks(f"services/{page}") if language == "yaml"]
    return {text.split()[1]: text for text in texts}


@pytest.mark.parametrize("page", PAGES)
def test_config_of_a_service_page_passes_check(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without warnings, once its files and variables exist."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deploy").symlink_to(DEPLOY)
    configs = {name: text for name, text in documents(page).items() if "clusters:" in text}
    assert "kproxy.yaml" in configs
    for name, text in configs.items():
        for variable in re.findall(r"\$\{(\w+)\}", text):
            monkeypatch.setenv(variable, "secret")
        for file in FILES.findall(text):
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_text("secret")
        (tmp_path / name).write_text(text)
        report = check((name,))
        assert (report.errors, report.warnings) == ([], [])
        assert report.right


def test_service_pages_have_the_same_parts() -> None:
    """The config comes first. A page has at most about 500 words."""
    for page in PAGES:
        text = (DOCS / "services" / page).read_text()
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS, page
        assert re.match(r"# .+\n\n(?:.+\n\n?)*?```yaml\n# kproxy.yaml\n", text), page
        assert len(text.split()) <= 520, page


def test_manifests_of_the_strimzi_page_are_valid() -> None:
    """The policy follows the schema of Kubernetes, the values follow that of the chart. The schema of KafkaUser is not
    available, so its fields are compared with those of the documentation."""
    found = documents("strimzi.md")
    manifests.follow_schema([yaml.safe_load(found["policy.yaml"])])
    user = yaml.safe_load(found["user.yaml"])
    values = yaml.safe_load((FOLDER / "values" / "strimzi.yaml").read_text())
    merged = yaml.safe_load((CHART / "values.yaml").read_text())
    for name, value in values.items():
        merged[name] = merged[name] | value
    Draft7Validator(json.loads((CHART / "values.schema.json").read_text())).validate(merged)
    config = yaml.safe_load(found["kproxy.yaml"])["clusters"]["main"]
    paths = {name: f"/etc/kproxy-secrets/{path}" for name, path in config["tls"].items()}

    assert values["cluster"] == config | {"tls": paths}
    assert {path.split("/")[3] for path in paths.values()} == values["secrets"].keys()
    assert (user["apiVersion"], user["kind"]) == ("kafka.strimzi.io/v1", "KafkaUser")
    assert user["metadata"]["labels"] == {"strimzi.io/cluster": "my-cluster"}
    assert user["metadata"]["name"] == values["secrets"]["kproxy-user"]
    assert user["spec"].keys() == {"authentication", "authorization"}
    assert user["spec"]["authentication"]["type"] in {"tls", "tls-external", "scram-sha-512"}
    fields: set[str] = {field for acl in user["spec"]["authorization"]["acls"] for field in acl}
    assert fields == {"resource", "operations"}


def test_profiles_are_valid_and_on_the_pages() -> None:
    """Each has sources with dates, no warning, and a page that names it."""
    index = (DOCS / "services" / "index.md").read_text()
    assert set(re.findall(r"`([\w-]+)\.yaml` \|$", index, re.MULTILINE)) == set(service_profiles.NAMES)
    pages = "".join((DOCS / "services" / page).read_text() for page in PAGES)
    for name in service_profiles.NAMES:
        path = service_profiles.PROFILES / f"{name}.yaml"
        report = check((str(path),))
        assert (report.errors, report.warnings) == ([], [])
        comment = path.read_text().partition("rules:")[0]
        assert re.search(r"Sources, read in \w+ 20\d\d:\n# - ", comment), name
        assert f"`{name}.yaml`" in pages


def test_command_of_the_profile_example_runs(tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(DEPLOY)
    with ExitStack() as stack:
        reader: Any = Reader(tmp_path, stack.enter_context(MockCluster(1)), stack)
        assert reader.work_through("services/index.md", "profile") == 2
