"""Metadata of the Helm chart for Artifact Hub and other catalogs, derived from other files of the repository.

`Chart.yaml` after its first lines: icon from the page, image from the values, changes from CHANGELOG.md. The table of
values in the chart's README comes from `values.yaml` and its schema.
"""

from __future__ import annotations

import json
import re
import textwrap
from base64 import b64encode
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "kproxy"
ICON = ROOT / "kproxy" / "admin" / "page" / "icon.svg"
KEYWORDS = ["kafka", "proxy", "gateway", "chaos-engineering", "fault-injection", "audit", "multi-tenancy"]
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")  # of artifacthub.io/changes
LONGEST_DEFAULT = 40  # characters of a default that the README shows
_VALUES = re.compile(r"(<!-- values -->\n).*?(<!-- end -->)", re.DOTALL)


def files() -> dict[Path, str]:
    """Return Chart.yaml and README.md of the chart with their derived parts."""
    chart, readme = CHART / "Chart.yaml", CHART / "README.md"
    return {
        chart: chart_yaml(chart.read_text(), (ROOT / "CHANGELOG.md").read_text()),
        readme: _VALUES.sub(lambda found: f"{found[1]}{values_table()}{found[2]}", readme.read_text()),
    }


def chart_yaml(text: str, changelog: str) -> str:
    """Return Chart.yaml with derived metadata below its hand-written lines, which end with `kubeVersion`."""
    head = re.sub(r"^keywords: .*", "", text, flags=re.MULTILINE | re.DOTALL)
    version, image_tag = (str(yaml.safe_load(head)[key]) for key in ("version", "appVersion"))
    image = yaml.safe_load((CHART / "values.yaml").read_text())["image"]["repository"]
    annotations = {
        "category": "streaming-messaging",
        "license": "Apache-2.0",
        "images": [{"name": "kproxy", "image": f"{image}:{image_tag}"}],
        "changes": changes(changelog, version),
    }
    lines = [f"keywords: [{', '.join(KEYWORDS)}]", f"icon: {icon()}", "maintainers: [{name: kproxy maintainers}]"]
    lines.append("annotations:  # derived by docs/tables.py")
    for name, value in annotations.items():
        if isinstance(value, str):
            lines.append(f"  artifacthub.io/{name}: {value}")
        else:
            block = yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=2**31)
            lines += [f"  artifacthub.io/{name}: |", textwrap.indent(block.rstrip("\n"), "    ")]
    return head + "\n".join(lines) + "\n"


def icon() -> str:
    """Return the page's icon as a URL that needs no server."""
    return f"data:image/svg+xml;base64,{b64encode(ICON.read_bytes()).decode()}"


def changes(changelog: str, version: str) -> list[dict[str, str]]:
    """Return the entries of a version's section in the changelog, otherwise those of *Unreleased*, as plain text.

    Raises ValueError if the section has a heading or entries that Artifact Hub cannot show.
    """
    sections = dict(re.findall(r"^## \[(\S+)\].*\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE))
    section = sections.get(version) or sections.get("Unreleased", "")
    found = []
    for heading, text in re.findall(r"^### (.+)\n((?:(?!### ).*\n?)*)", section, re.MULTILINE):
        kind = heading.strip().lower()
        if kind not in KINDS:
            raise ValueError(f"expected one of {', '.join(KINDS)}, got {heading!r} (at CHANGELOG.md)")
        for entry in re.findall(r"^- (.+(?:\n {2}.+)*)", text, re.MULTILINE):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(entry.split()))
            found.append({"kind": kind, "description": re.sub(r"[*`]", "", plain)})
    if not found:
        raise ValueError(f"expected entries of {version} or Unreleased, got none (at CHANGELOG.md)")
    return found


def values_table() -> str:
    """Return a table of the chart's top-level values."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    lines = ["| value | default | description |", "|---|---|---|"]
    for name, value in values.items():
        default = json.dumps(value)
        shown = f"`{default}`" if len(default) <= LONGEST_DEFAULT else "see `values.yaml`"
        lines.append(f"| `{name}` | {shown} | {schema[name]['description']} |")
    return "\n".join(lines) + "\n"
