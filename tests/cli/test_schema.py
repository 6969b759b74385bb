"""`kproxy schema`: schemas in both drafts, their identity, the catalog's entry, and the examples of the repository."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft7Validator, Draft202012Validator

from kproxy.base.distribution import own_version
from kproxy.cli import main, printouts
from kproxy.cli.printouts import DIALECTS, DOCUMENTS, NOT_IN_DRAFT_7

ROOT = Path(__file__).parents[2]
VALIDATORS = {"7": Draft7Validator, "2020-12": Draft202012Validator}
WRONG = {
    "rules": ["{}", "rules: [{kind: delay, delay: 1s}]", "rules: [{name: a, kind: delay, delay: 1s, delai: 1s}]",
              "rules: [{name: a, kind: delay, delay: 1s, when: {everi: 3}}]", "scenario: {stages: [{rules: [3]}]}"],
    "config": ["{clusters: {}}", "{clusters: {a: {bootstrap: [b:1]}}, listeners: [{bind: 3, cluster: a}]}",
               "{clusters: {a: {bootstrap: [b:1], tlz: {}}}, listeners: [{bind: 'b:1', cluster: a}]}",
               "{clusters: {a: {bootstrap: [b:1]}}, listeners: [{bind: 'b:1', cluster: a}], limits: {max: 1}}",
               "{clusters: {}, listeners: [], otlp: {endpoint: 'http://c:1', semconv: 1.30}}"],
    "tests": ["{}", "tests: [{name: a, steps: [{klient: {}}]}]", "tests: [{name: 3, steps: []}]"],
}  # fmt: skip
each = pytest.mark.parametrize(("what", "draft"), [(what, draft) for what in DOCUMENTS for draft in DIALECTS])


def printed(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["schema", *words])
    assert result.exit_code == 0, result.output
    schema: dict[str, Any] = json.loads(result.output)
    return schema


def load(path: Path) -> Any:
    """Import a script of docs/, which is not a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keywords(schema: Any) -> Iterator[str]:
    """Yield the keywords of a schema and of its parts, but not the names of properties and definitions."""
    for value in schema if isinstance(schema, list) else ():
        yield from keywords(value)
    for key, value in schema.items() if isinstance(schema, dict) else ():
        yield key
        if key in ("definitions", "properties", "patternProperties"):
            yield from (word for one in value.values() for word in keywords(one))
        elif key not in ("const", "default", "enum"):
            yield from keywords(value)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Installs metadata of version 1.2.3 with these lines before kproxy's own."""

    def install(*lines: str) -> None:
        folder = tmp_path / "kproxy_kafka-1.2.3.dist-info"
        folder.mkdir()
        head = ["Metadata-Version: 2.4", "Name: kproxy-kafka", "Version: 1.2.3", *lines]
        (folder / "METADATA").write_text("\n".join(head) + "\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        own_version.cache_clear()

    yield install
    own_version.cache_clear()


@each
def test_schema_follows_its_metaschema_and_accepts_examples(what: str, draft: str) -> None:
    schema, validator = printed(what, "--draft", draft), VALIDATORS[draft]
    validator.check_schema(schema)
    assert schema["$schema"] == validator.META_SCHEMA["$schema"] == DIALECTS[draft]

    check = validator(schema)
    examples = [file for file, kind in load(ROOT / "docs" / "tables.py").examples().items() if kind == what]
    found = {
        str(file): [error.message for error in check.iter_errors(yaml.safe_load(file.read_text()))] for file in examples
    }
    assert {file: errors for file, errors in found.items() if errors} == {}
    assert len(examples) > (3 if what == "config" else 50)
    assert [text for text in WRONG[what] if check.is_valid(yaml.safe_load(text))] == []


@pytest.mark.parametrize("what", DOCUMENTS)
def test_draft_7_has_only_its_keywords_and_lone_refs(what: str) -> None:
    """A `$ref` of draft 7 hides all keywords next to it. The committed file for editors is the same schema."""
    schema = printed(what, "--draft", "7")
    used = Counter(keywords(schema))
    assert not used.keys() & (NOT_IN_DRAFT_7 | {"$defs", "prefixItems", "dependentRequired", "unevaluatedProperties"})
    beside = re.findall(r'[^{]{1,80}"\$ref": "[^"]*",', json.dumps(schema)) + re.findall(
        r', "\$ref"', json.dumps(schema)
    )
    assert beside == []
    file = json.loads((ROOT / "docs" / "schemas" / f"{what}.json").read_text())
    assert file == {key: value for key, value in schema.items() if key not in ("$id", "$comment")}


def test_examples_name_their_schema_in_the_first_line() -> None:
    """The path leads to a file of the repository, so editors need no published site."""
    for file, kind in load(ROOT / "docs" / "tables.py").examples().items():
        _, _, path = file.read_text().partition("\n")[0].partition("# yaml-language-server: $schema=")
        assert (file.parent / path).resolve() == ROOT / "docs" / "schemas" / f"{kind}.json", file


URLS = ["Project-URL: Home-Page, https://a.example/x", "Project-URL: documentation, https://a.example/pages/#start"]


@pytest.mark.parametrize(
    ("lines", "base"),
    [(URLS, "https://a.example/pages"), (URLS[:1], "https://a.example/x"),
     (["Project-URL: Issues, https://a.example/i"], None), ([], None)],
)  # fmt: skip
def test_id_has_url_and_version_of_the_installed_package(
    installed: Any, lines: list[str], base: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a URL no identifier is invented: then the place of the file identifies a schema."""
    installed(*lines)
    monkeypatch.setattr(printouts, "schema_of", lambda what, draft: {"title": what})  # the content costs a second each
    schemas = [printed(what, "--draft", draft) for what in DOCUMENTS for draft in DIALECTS]
    ids = [schema["$id"] for schema in schemas if "$id" in schema]
    site = load(ROOT / "docs" / "site_hooks.py").schemas()

    if base is None:
        assert (ids, site) == ([], {})
        assert {schema["$comment"] for schema in schemas} == {"kproxy 1.2.3"}
        result = CliRunner().invoke(main, ["schema", "rules", "--catalog"])
        assert result.exit_code == 1
        assert result.output == "Error: expected a Project-URL in the metadata of kproxy-kafka, got none\n"
        return
    assert len({*ids}) == len(DOCUMENTS) * len(DIALECTS)
    assert all(one.startswith(f"{base}/schemas/1.2.3/") and not urlsplit(one).fragment for one in ids)
    assert {f"{base}/{path}" for path in site} == {*ids}
    for schema in schemas:
        VALIDATORS["7" if "draft-07" in schema["$schema"] else "2020-12"].check_schema(schema)
        assert json.loads(site[schema["$id"].removeprefix(f"{base}/")]) == schema
    for what in DOCUMENTS:
        entry = printed(what, "--catalog")
        assert set(entry) == {"name", "description", "fileMatch", "url"}  # of schema-catalog.json; no other is allowed
        assert entry["url"] == f"{base}/schemas/{what}.json"
        assert (ROOT / "docs" / "schemas" / f"{what}.json").is_file()


def test_schema_command_unknown_draft_lists_the_drafts() -> None:
    result = CliRunner().invoke(main, ["schema", "rules", "--draft", "4"])
    assert (result.exit_code, "'4' is not one of '2020-12', '7'" in result.output) == (2, True)


def test_editor_commands_of_the_page_write_schemas() -> None:
    """For each kind of document, in draft 7; the schemas themselves are compared above."""
    page = (ROOT / "docs" / "configuration.md").read_text().partition("## Editor support\n")[2].partition("\n## ")[0]
    commands = re.findall(r"^\$ kproxy schema (\w+) --draft 7 > kproxy-(\w+)\.json$", page, re.MULTILINE)
    assert sorted(commands) == sorted((what, what) for what in DOCUMENTS)
