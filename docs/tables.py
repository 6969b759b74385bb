"""Fills the generated parts of the pages from the models: `python docs/tables.py`.

- A table stands between `<!-- table: kproxy.app.config.document:AdminConfig -->` and `<!-- end -->`.
- The table of all kinds stands between `<!-- kinds -->` and `<!-- end -->`.
- Each group of rule kinds has a page, `kinds-*.md`. Its head and the first part of each kind (what it does, its own
  fields, an example) stand between `<!-- group: … -->` or `<!-- kind: … -->` and `<!-- end -->`; text behind that is
  written by hand and kept. A new kind gets its section, a new group its page.
- The table of faults is written by hand between `<!-- faults -->` and `<!-- end -->`; kinds that it lacks get a row.
- The phases of a session are drawn between `<!-- phases -->` and `<!-- end -->`, in ARCHITECTURE.md.
- The JSON Schemas of the events, what the schema of the Helm chart's values says of kproxy's config, the pictures of
  the README and the list of decisions are written, too.

Tests compare all of that with the models, so that neither can change alone.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from pathlib import Path
from types import ModuleType

import yaml

from kproxy.record.events import schema as events
from kproxy.record.events.column import EventType
from kproxy.record.events.schema import EVENT_TYPES, json_schema
from kproxy.rules.document.reference import markdown_table, rows, sentence
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.session.session_state import TRANSITIONS, SessionPhase

PAGES = Path(__file__).parent
WIDTH = 126
_TABLE = re.compile(r"(<!-- table: ([\w.]+):(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_KINDS = re.compile(r"(<!-- kinds -->\n).*?(<!-- end -->)", re.DOTALL)
_FAULTS = re.compile(r"(<!-- faults -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_PERMANENT = re.compile(r"(<!-- permanent -->\n).*?(<!-- end -->)", re.DOTALL)
_DECISIONS = re.compile(r"(<!-- decisions -->\n).*?(<!-- end -->)", re.DOTALL)
_PHASES = re.compile(r"(<!-- phases -->\n).*?(<!-- end -->)", re.DOTALL)
_PART = re.compile(r"<!-- (?:group|kind): ([\w ,:-]+) -->\n.*?<!-- end -->\n", re.DOTALL)


def filled(text: str) -> str:
    """Return a page with all its tables made anew."""
    text = _DECISIONS.sub(lambda found: f"{found[1]}{decisions_table()}{found[2]}", text)
    text = _PHASES.sub(lambda found: f"{found[1]}{phases_diagram()}{found[2]}", text)
    text = _FAULTS.sub(lambda found: f"{found[1]}{faults_table(found[2])}{found[3]}", text)
    text = _PERMANENT.sub(lambda found: f"{found[1]}{permanent_kinds()}{found[2]}", text)
    return _KINDS.sub(lambda found: f"{found[1]}{kinds_table()}{found[2]}", _TABLE.sub(_fill, text))


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


# ---- pages of rule kinds


def kinds_page(group: str) -> Path:
    """Return the page of a group of kinds, which is named by the first noun of the group's title."""
    word = next(word for word in re.findall(r"\w+", group) if word != "the")
    return PAGES / f"kinds-{word}.md"


def kinds_pages() -> dict[Path, str]:
    """Return the page of each group of kinds, and what has to stand in it."""
    return {
        (page := kinds_page(group)): kinds_text(group, kinds, page.read_text() if page.exists() else "")
        for group, kinds in KINDS.by_title().items()
    }


def kinds_text(group: str, kinds: Sequence[str], before: str) -> str:
    """Return the page of a group: generated parts in the order of `kinds`, each with the notes that `before` has."""
    _, *parts = _PART.split(before)
    notes = dict(zip(parts[::2], (note.strip("\n") for note in parts[1::2]), strict=True))
    if stray := sorted({name for name, note in notes.items() if note} - {group, *kinds}):
        raise ValueError(f'{kinds_page(group).name} has notes on {", ".join(stray)}, not of the group "{group}"')
    generated = {group: ("group", _head(group, kinds))} | {kind: ("kind", _section(kind)) for kind in kinds}
    return "\n".join(
        f"<!-- {sort}: {name} -->\n\n{text}\n<!-- end -->\n" + (f"\n{notes[name]}\n" if notes.get(name) else "")
        for name, (sort, text) in generated.items()
    )


def kinds_table() -> str:
    """Return the table of the groups of kinds, for the page of rules."""
    lines = ["| kinds for | which |", "|---|---|"]
    for group, kinds in KINDS.by_title().items():
        page = kinds_page(group).name
        lines.append(f"| [{group}]({page}) | {', '.join(f'[`{kind}`]({page}#{kind})' for kind in kinds)} |")
    return "\n".join(lines) + "\n"


def _head(group: str, kinds: Sequence[str]) -> str:
    models = [KINDS[kind] for kind in kinds]
    live = issubclass(models[0], LiveRule)
    said = "A rule of these kinds takes effect at the next frame. "
    if not live:
        said = (
            "A rule of these kinds binds when a connection opens, for as long as that lives, so that a client's view "
        )
        said += "of the cluster does not change under it. "
    said += "How rules are written, and the fields that every rule has: [rules](rules.md#fields-of-every-rule)."
    if any(isinstance(model, type) and issubclass(model, LiveRule) and model.family == "fault" for model in models):
        said += " Faults by number, with rules for each: [faults](faults.md)."
    table = "".join(f"| [`{kind}`](#{kind}) | {sentence(KINDS[kind])} |\n" for kind in kinds)
    return f"# {group[0].upper()}{group[1:]}\n\n{_wrapped(said)}\n\n| kind | what it does |\n|---|---|\n{table}"


def _section(kind: str) -> str:
    model = KINDS[kind]
    paragraphs = (" ".join(text.split()) for text in (model.__doc__ or "").split("\n\n"))
    parts = [f"## {kind}", *(_wrapped(text) for text in paragraphs if text)]
    if own := list(_own_rows(model)):
        parts.append("\n".join(["| key | what | default | |", "|---|---|---|---|", *own]))
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


def permanent_kinds() -> str:
    kinds = [kind for kind, model in KINDS.items() if "permanent" in model.model_fields]
    pages = {kind: kinds_page(title).name for title, group in KINDS.by_title().items() for kind in group}
    return "Kinds that have it: " + ", ".join(f"[`{kind}`]({pages[kind]}#{kind})" for kind in kinds) + ".\n"


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
    files = {page: page.read_text() for page in pages} | kinds_pages()
    chart = beside("chart_schema")
    schema_of_values = {chart.FILE: chart.chart_schema()}
    return {page: filled(text) for page, text in files.items()} | schemas() | pictures() | schema_of_values


if __name__ == "__main__":
    for file, content in sorted(generated().items()):
        if not file.exists() or file.read_text() != content:
            file.parent.mkdir(exist_ok=True)
            file.write_text(content)
            print(file.relative_to(PAGES.parent))
