"""Fill the generated parts of the pages from the models: `python docs/tables.py`.

Each part ends with `<!-- end -->` and begins with a mark:

- `<!-- table: kproxy.app.config.document:AdminConfig -->`: the table of a model, or the text of a function.
- `<!-- kinds -->`: the table of all rule kinds, with links.
- `<!-- kind: quota -->`: description, fields and example of a kind. Each kind has one such block, on any page.
- `<!-- group: records -->`: heading and list of a group of kinds. Their own headings are one level deeper.
- `<!-- faults -->`: the fault catalog. Its rows are written by hand; kinds without a row get one.
- `<!-- phases -->`: the phases of a session, in ARCHITECTURE.md.

All other text of a page is kept. Generated as well are the JSON Schemas of events and of documents, kproxy's config in
the schema of the Helm chart, the values in its README, the README's pictures and the index of decisions. The first line
of each example in rules/ and deploy/ names its schema for editors. Tests compare all of them.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from pathlib import Path
from types import ModuleType

import yaml

from kproxy.cli.printouts import DIALECTS, DOCUMENTS, schema_of
from kproxy.record.events import schema as events
from kproxy.record.events.column import EventType
from kproxy.record.events.schema import EVENT_TYPES, json_schema
from kproxy.rules.document.reference import markdown_table, rows, sentence
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.session.session_state import TRANSITIONS, SessionPhase

PAGES = Path(__file__).parent
ROOT = PAGES.parent
EXAMPLES = ("rules/**/*.yaml", "deploy/*.yaml", "deploy/kustomize/**/*.yaml", "deploy/profiles/**/*.yaml")
"""Files of which those that are kproxy's get a first line with their schema."""
MODELINE = "# yaml-language-server: $schema="
WIDTH = 126
_TABLE = re.compile(r"(<!-- table: ([\w.]+):(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_KINDS = re.compile(r"(<!-- kinds -->\n).*?(<!-- end -->)", re.DOTALL)
_FAULTS = re.compile(r"(<!-- faults -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_PERMANENT = re.compile(r"(<!-- permanent -->\n).*?(<!-- end -->)", re.DOTALL)
_DECISIONS = re.compile(r"(<!-- decisions -->\n).*?(<!-- end -->)", re.DOTALL)
_PHASES = re.compile(r"(<!-- phases -->\n).*?(<!-- end -->)", re.DOTALL)
_GROUP = re.compile(r"(<!-- group: ([\w ,:-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_KIND = re.compile(r"(<!-- kind: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, places: Mapping[str, Path]) -> str:
    """Return a page with all generated parts filled in. `places`: see `kind_places`."""
    text = _DECISIONS.sub(lambda found: f"{found[1]}{decisions_table()}{found[2]}", text)
    text = _PHASES.sub(lambda found: f"{found[1]}{phases_diagram()}{found[2]}", text)
    text = _FAULTS.sub(lambda found: f"{found[1]}{faults_table(found[2])}{found[3]}", text)
    text = _PERMANENT.sub(lambda found: f"{found[1]}{permanent_kinds(places)}{found[2]}", text)
    text = _GROUP.sub(lambda found: f"{found[1]}\n{_head(found[2])}\n{found[3]}", text)
    level = "###" if _GROUP.search(text) else "##"
    text = _KIND.sub(lambda found: f"{found[1]}\n{_section(found[2], level)}\n{found[3]}", text)
    return _KINDS.sub(lambda found: f"{found[1]}{kinds_table(places)}{found[2]}", _TABLE.sub(_fill, text))


def _fill(found: re.Match[str]) -> str:
    here = found[2].removeprefix("docs.")
    module = importlib.import_module(found[2]) if here == found[2] else beside(here)
    model = getattr(module, found[3])
    if isfunction(model):  # it makes the table itself
        return f"{found[1]}{model()}{found[4]}"
    table = events.markdown_table if isinstance(model, (EventType, tuple)) else markdown_table
    return f"{found[1]}{table(model)}{found[4]}"


def schemas() -> dict[Path, str]:
    """Return the files of the events' JSON Schemas, and what has to stand in them."""
    return {
        PAGES / "events" / f"{one.short}.schema.json": json.dumps(json_schema(one), indent=2, ensure_ascii=False) + "\n"
        for one in EVENT_TYPES
    }


def document_schemas() -> dict[Path, str]:
    """Return the JSON Schemas of documents for editors, in the draft that most editors support."""
    found = {what: {"$schema": DIALECTS["7"], **schema_of(what, "7")} for what in DOCUMENTS}
    return {
        PAGES / "schemas" / f"{what}.json": json.dumps(one, indent=1, ensure_ascii=False) + "\n"
        for what, one in found.items()
    }


def examples() -> dict[Path, str]:
    """Return the kind of each example file of the repository: rules, config or tests."""
    files = sorted(file for pattern in EXAMPLES for file in ROOT.glob(pattern))
    kinds = {file: document_kind(file) for file in files}
    return {file: kind for file, kind in kinds.items() if kind}


def document_kind(file: Path) -> str:
    """Return the kind of document that a file contains, empty for other YAML."""
    if file.name.endswith(".test.yaml"):
        return "tests"
    keys = re.findall(r"^([a-z_]+):", file.read_text(), re.MULTILINE)
    if "clusters" in keys and "listeners" in keys:
        return "config"
    return "rules" if keys[:1] in (["rules"], ["scenario"]) else ""


def with_schema(file: Path, kind: str) -> str:
    """Return the text of an example, with a first line that names its schema."""
    path = Path(os.path.relpath(PAGES / "schemas" / f"{kind}.json", file.parent)).as_posix()
    text = file.read_text()
    return f"{MODELINE}{path}\n" + (text.partition("\n")[2] if text.startswith(MODELINE) else text)


def decisions_table() -> str:
    """Return the list of decisions by area, from the first lines of their files."""
    rows: dict[str, list[str]] = {}
    for file in sorted((PAGES / "decisions").glob("[0-9]*.md")):
        title, _, facts = file.read_text().splitlines()[:3]
        status, date, area = (fact.partition(": ")[2] for fact in facts.split(" · "))
        link = f"[{title.removeprefix('# ')}]({file.name})"
        rows.setdefault(area, []).append(f"| {area} | {int(file.name[:4])} | {link} | {date} | {status} |")
    head = ["| area | | decision | date | status |", "|---|---|---|---|---|"]
    return "\n".join(head + [row for area in rows.values() for row in area]) + "\n"


def phases_diagram() -> str:
    """Return the phases of a session with the transitions from each; those that all share stand at the end."""
    ends = (SessionPhase.CLOSING, SessionPhase.OVER)
    lines = []
    for phase in SessionPhase:
        lines.append(f"{phase.name:<15} {phase.value}")
        after = [(new.name, cause) for (old, new), cause in TRANSITIONS.items() if old is phase and new not in ends]
        lines += [f"  ├─▶ {name:<9} {cause}" for name, cause in after[:-1]]
        lines += [f"  └─▶ {name:<9} {cause}" for name, cause in after[-1:]]
    for end in ends:
        (cause,) = {cause for (_, new), cause in TRANSITIONS.items() if new is end}
        before = [old.name for old, new in TRANSITIONS if new is end]
        lines += ["", f"{', '.join(before)}", f"  └─▶ {end.name:<9} {cause}"]
    return "```\n" + "\n".join(lines) + "\n```\n"


# ---- rule kinds


def kinds_pages(texts: Mapping[Path, str]) -> dict[Path, str]:
    """Return pages with a block for each kind. A new kind gets one before a block of its group."""
    places = kind_places(texts)
    found = dict(texts)
    for kinds in KINDS.by_group().values():
        present = [kind for kind in kinds if kind in places]
        for kind in kinds:
            if kind not in places:
                if not present:
                    raise ValueError(f"expected a block of kind {kind} on a page, got none (at docs/*.md)")
                page = places[present[-1]]
                mark = f"<!-- kind: {present[-1]} -->\n"
                found[page] = found[page].replace(mark, f"<!-- kind: {kind} -->\n<!-- end -->\n\n{mark}")
    return found


def kind_places(texts: Mapping[Path, str]) -> dict[str, Path]:
    """Return the page with the block of each kind."""
    found: dict[str, Path] = {}
    for page, text in texts.items():
        for kind in re.findall(r"^<!-- kind: (\w+) -->$", text, re.MULTILINE):
            if kind in found:
                raise ValueError(f"expected one block of kind {kind}, got two (at {found[kind].name} and {page.name})")
            found[kind] = page
    return found


def kinds_table(places: Mapping[str, Path]) -> str:
    """Return the table of the groups of kinds, for the page of rules."""
    lines = ["| group | kinds |", "|---|---|"]
    for group, kinds in KINDS.by_group().items():
        lines.append(f"| {group} | {', '.join(f'[`{kind}`]({places[kind].name}#{kind})' for kind in kinds)} |")
    return "\n".join(lines) + "\n"


def _head(group: str) -> str:
    kinds = KINDS.by_group()[group]
    table = "".join(f"| [`{kind}`](#{kind}) | {sentence(KINDS[kind])} |\n" for kind in kinds)
    return f"## {group[0].upper()}{group[1:]}\n\n| kind | effect |\n|---|---|\n{table}"


def _section(kind: str, level: str) -> str:
    model = KINDS[kind]
    paragraphs = (" ".join(text.split()) for text in (model.__doc__ or "").split("\n\n"))
    parts = [f"{level} {kind}", *(_wrapped(text) for text in paragraphs if text)]
    if own := list(_own_rows(model)):
        parts.append("\n".join(["| key | type | default | description |", "|---|---|---|---|", *own]))
    else:
        parts.append("It has no fields of its own.")
    parts.append(f"```yaml\nrules:\n{textwrap.indent(model.example.rstrip(), '  ')}\n```")
    return "\n\n".join(parts) + "\n"


def _own_rows(model: type[Rule]) -> Iterator[str]:
    """The rows of a kind's table: what it has beside the fields of every rule."""
    common = set(rows(LiveRule if issubclass(model, LiveRule) else Rule))
    _, _, *lines = markdown_table(model).splitlines()
    for row, line in zip(rows(model), lines, strict=True):
        if row.key == "permanent":
            yield f"| `permanent` | {row.what} | `{row.default}` | [not a fault](rules.md#permanent) if true |"
        elif row.key != "kind" and row not in common:
            yield line


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


# ---- faults


def faults_table(before: str) -> str:
    """Return the table of faults with a row more for each kind of faults that none of its rows has.

    Such a row says what the kind says: its first sentence and its example. Whoever knows better changes the row.
    """
    head, line, *table = before.splitlines()
    shown = {kind for row in table for kind in re.findall("`([^`]+)`", row.split(" | ")[2])}
    for kind, model in KINDS.items():
        if issubclass(model, LiveRule) and model.family == "fault" and kind not in shown:
            table.append(f"| {len(table) + 1} | {_fault(sentence(model))} | `{kind}` | `{_one_rule(model)}` |")
    return "\n".join([head, line, *table]) + "\n"


def permanent_kinds(places: Mapping[str, Path]) -> str:
    """Return the kinds with `permanent`, as a sentence with links."""
    kinds = [kind for kind, model in KINDS.items() if "permanent" in model.model_fields]
    return "Kinds that have it: " + ", ".join(f"[`{kind}`]({places[kind].name}#{kind})" for kind in kinds) + ".\n"


def _fault(text: str) -> str:
    return (text[0].lower() + text[1:]).rstrip(".").replace("|", "\\|")


def _one_rule(model: type[Rule]) -> str:
    rule = {name: value for name, value in yaml.safe_load(model.example)[0].items() if name != "name"}
    text: str = yaml.safe_dump(rule, default_flow_style=True, sort_keys=False, width=sys.maxsize)
    return text.strip().removeprefix("{").removesuffix("}")


# ---- all


def pictures() -> dict[Path, str]:
    """Return the pictures of the README, drawn by picture.py beside this file."""
    return {PAGES / name: text for name, text in beside("picture").pictures().items()}


def beside(name: str) -> ModuleType:
    """Return the module of this name that stands beside this file."""
    spec = spec_from_file_location(name, PAGES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def generated() -> dict[Path, str]:
    """Return every file that is generated as a whole or in part, and what has to stand in it."""
    pages = (*PAGES.rglob("*.md"), PAGES.parent / "ARCHITECTURE.md")
    files = kinds_pages({page: page.read_text() for page in pages})
    places = kind_places(files)
    chart = beside("chart_schema")
    schema_of_values = {chart.FILE: chart.chart_schema()}
    texts = {page: filled(text, places) for page, text in files.items()} | schemas() | document_schemas()
    texts |= {file: with_schema(file, kind) for file, kind in examples().items()}
    return texts | pictures() | schema_of_values | beside("chart_metadata").readme()


if __name__ == "__main__":
    for file, content in sorted(generated().items()):
        if not file.exists() or file.read_text() != content:
            file.parent.mkdir(exist_ok=True)
            file.write_text(content)
            print(file.relative_to(PAGES.parent))
