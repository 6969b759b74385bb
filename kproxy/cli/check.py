"""`kproxy check`: rule and config documents, every mistake at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import click

from kproxy.config import Config
from kproxy.config_file import config_from, is_config, rule_paths
from kproxy.errors import DocumentError
from kproxy.rules.document import rule_files, rules_from
from kproxy.rules.source import Source


@dataclass
class Report:
    """What was found: mistakes in the order of files, and a line for each document or set that is right."""

    mistakes: list[str] = field(default_factory=list)
    right: list[str] = field(default_factory=list)

    def add(self, mistakes: list[str]) -> None:
        """Add lines that are not there yet; a file may be reached on two ways."""
        self.mistakes += [line for line in dict.fromkeys(mistakes) if line not in self.mistakes]


@click.command("check")
@click.argument("paths", metavar="PATHS…", nargs=-1, required=True)
@click.pass_context
def command(ctx: click.Context, paths: tuple[str, ...]) -> None:
    """Check rule files, config files and folders of them.

    Each mistake is a line `file:line:column: message`. A config file is checked together with the rules that it
    names; all other rules are checked as one set. Exit code 1 if there is any mistake.
    """
    report = check(paths)
    for line in report.mistakes:
        click.echo(line)
    if report.mistakes:
        count = len(report.mistakes)
        click.echo(f"{count} mistake{'s' if count > 1 else ''}", err=True)
        ctx.exit(1)
    for line in report.right:
        click.echo(line)


def check(paths: tuple[str, ...]) -> Report:
    """Check documents; nothing is raised for what is in them."""
    report = Report()
    sources = [(path, Source.open(path)) for path in rule_files(paths)]
    configs = [(path, source) for path, source in sources if is_config(source)]
    covered: set[Path] = set()
    for path, source in configs:
        covered |= _check_config(path, source, report)
    rest = [(path, source) for path, source in sources if not is_config(source) and real(path) not in covered]
    report.right += [f"{path}: no rule files, that is *.yaml or *.yml" for path in paths if not rule_files([path])]
    if rest:
        _check_rules([source for _, source in rest], [str(path) for path, _ in rest], report)
    return report


def real(path: Path) -> Path:
    """The path without links; as it is where that cannot be said (links in a circle, a current folder that is gone)."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _check_config(path: Path, source: Source, report: Report) -> set[Path]:
    """Check a config with its rules; returns the rule files, so that they are not checked once more alone."""
    config = config_from(source, path.parent)
    files = rule_files(rule_paths(source, path.parent, config))
    report.add(source.lines())
    if config is not None:
        clusters, listeners = _count(len(config.clusters), "cluster"), _count(len(config.listeners), "listener")
        report.right.append(f"{path}: {clusters}, {listeners}")
    if files:
        _check_rules([Source.open(file) for file in files], [str(file) for file in files], report, config)
    return {real(file) for file in files}


def _check_rules(sources: list[Source], names: list[str], report: Report, config: Config | None = None) -> None:
    try:
        rules = rules_from(sources, None if config is None else config.places())
    except DocumentError as error:
        report.add(error.mistakes)
    else:
        kinds = [rule.kind for rule in rules.rules]
        what = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        report.right.append(f"{', '.join(names)}: {_count(len(rules), 'rule')}{f' ({what})' if what else ''}")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
