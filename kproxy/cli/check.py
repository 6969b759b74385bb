"""`kproxy check`: check rule files, config files and rule tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import click

from kproxy.app.config.document import Config, config_from, is_config, rule_paths
from kproxy.base.errors import DocumentError
from kproxy.base.terminal import counted, say
from kproxy.cli.reports import FORMS, Case, Level, Outputs, Report, place_of, problem_at, report_option, write_report
from kproxy.rules.document.lint import lint_rules
from kproxy.rules.document.read import check_documents, read_document, rule_files
from kproxy.rules.values.source import Source, told

SUITE = "kproxy check"
RULES = {
    "invalid-config": "A config file has an error.",
    "invalid-rules": "A rule file has an error.",
    "invalid-tests": "A test file, or a rule file that it tests, has an error.",
    "doubtful-rule": "A valid rule lacks an effect that its text suggests.",
}


@dataclass
class CheckReport:
    """Report of one check: errors and warnings in the order of files, a line in `right` for each document or rule set
    without errors, and the numbers of rules and tests. `files`: the rule of an error in each checked file. `empty`:
    paths without files."""

    files: dict[str, str] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    right: list[str] = field(default_factory=list)
    rules: int = 0
    tests: int = 0

    def add(self, errors: Iterable[str]) -> None:
        """Add errors without duplicates: two paths or configs may lead to the same file."""
        self.errors = list(dict.fromkeys((*self.errors, *errors)))

    def warn(self, warnings: Iterable[str]) -> None:
        self.warnings = list(dict.fromkeys((*self.warnings, *warnings)))

    @property
    def summary(self) -> str:
        """Return a summary such as `3 rules, 2 tests, 1 warning`; with errors, it counts only errors and warnings."""
        warnings = counted(len(self.warnings), "warning")
        if self.errors:
            return ", ".join([counted(len(self.errors), "error"), *([warnings] if self.warnings else [])])
        return ", ".join(
            [counted(self.rules, "rule"), *([counted(self.tests, "test")] if self.tests else []), warnings]
        )


@click.command("check")
@click.argument("paths", metavar="PATHS…", nargs=-1)
@click.option("--strict", is_flag=True, help="Exit with code 1 after warnings.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of rule files, for editors.")
@report_option(*FORMS)
@click.pass_context
def command(ctx: click.Context, paths: tuple[str, ...], strict: bool, schema: bool, output: Outputs) -> None:
    """Check rule files, config files, rule tests, and folders of them.

    Each error is a line `file:line:column: message`. Each warning is a line `file:line:column: warning: message`: the
    rule is valid, but lacks an effect that its text suggests. A config file is checked together with its rules. All
    other rules are checked as one set. The exit code is 1 after an error, with --strict also after a warning.
    """
    if schema:
        from kproxy.cli.printouts import identified_schema

        say(json.dumps(identified_schema("rules"), indent=2))
        return
    if not paths:
        raise click.UsageError("expected files or folders to check, got none")
    report = check(paths)
    failed = bool(report.errors or (strict and report.warnings))
    if output:
        write_report(report_of(report, strict, failed), output)
    if output.printed != "text":
        ctx.exit(1 if failed else 0)
    for line in report.errors or report.right:
        say(line)
    for line in report.warnings:
        file, row, column, text = place_of(line, report.files)
        say(f"{file}:{row}:{column}: warning: {text}")
    if failed or report.rules or report.tests:
        say(report.summary, err=failed)
    ctx.exit(1 if failed else 0)


def report_of(report: CheckReport, strict: bool, failed: bool) -> Report:
    """Return a case for each file. Warnings fail a case if `strict`. Errors without a file have a case of their own."""
    cases = {file: Case(SUITE, file, file=file) for file in report.files}
    found: list[tuple[Level, str]] = [("error", line) for line in report.errors]
    found += [("warning", line) for line in report.warnings]
    for level, line in found:
        problem = problem_at(line, report.files, "doubtful-rule", level)
        if level == "error":
            problem.rule = report.files.get(problem.file, "invalid-rules")
        case = cases.setdefault(problem.file, Case(SUITE, problem.file or "other files", file=problem.file))
        case.problems.append(problem)
        if level == "error" or strict:
            case.outcome = "failed"
    empty = [Case(SUITE, path, "skipped", reason="no rule files (*.yaml or *.yml)") for path in report.empty]
    return Report("check", int(failed), report.summary, [*cases.values(), *empty], RULES)


def check(paths: tuple[str, ...]) -> CheckReport:
    """Check the documents in files and folders. Errors in them are reported, not raised."""
    from kproxy.tools.rehearse.cases.document import case_files, is_case_file

    report = CheckReport()
    sources = [(path, Source.open(path)) for path in rule_files(paths) if not is_case_file(path)]
    configs = [(path, source) for path, source in sources if is_config(source)]
    covered: set[Path] = set()
    for path, source in configs:
        covered |= _check_config(path, source, report)
    rest = [(path, source) for path, source in sources if not is_config(source) and real(path) not in covered]
    tests = [path for path in case_files(paths) if is_case_file(path)]
    report.empty = [path for path in paths if not rule_files([path]) and not case_files([path])]
    report.right += [f"{path}: no rule files (*.yaml or *.yml)" for path in report.empty]
    report.files |= dict.fromkeys(map(str, tests), "invalid-tests")
    if rest:
        _check_rules([source for _, source in rest], [str(path) for path, _ in rest], report)
    for path in tests:
        _check_tests(path, report)
    return report


def real(path: Path) -> Path:
    """Return the path without symbolic links; unchanged if they form a loop or the current folder is deleted."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _check_config(path: Path, source: Source, report: CheckReport) -> set[Path]:
    """Check a config with its rules. Return the rule files, so that they are not checked again without it."""
    report.files[str(path)] = "invalid-config"
    config = config_from(source, path.parent)
    files = rule_files(rule_paths(source, path.parent, config))
    report.add(told(source.lines(), source.untold))
    if config is not None:
        clusters, listeners = counted(len(config.clusters), "cluster"), counted(len(config.listeners), "listener")
        report.right.append(f"{path}: {clusters}, {listeners}")
    if files:
        _check_rules([Source.open(file) for file in files], [str(file) for file in files], report, config)
    return {real(file) for file in files}


def _check_rules(sources: list[Source], names: list[str], report: CheckReport, config: Config | None = None) -> None:
    report.files |= dict.fromkeys(names, "invalid-rules")
    places = None if config is None else config.places()
    documents = [read_document(source) for source in sources]
    check_documents(documents, places)
    parsed_rules = [one for document in documents for one in document.parsed_rules]
    report.warn(map(str, lint_rules(parsed_rules, places)))
    errors = told([line for source in sources for line in source.lines()], sum(one.untold for one in sources))
    report.add(errors)
    if errors:
        return
    report.rules += len(parsed_rules)
    for name, document in zip(names, documents, strict=True):
        kinds = [one.rule.kind for one in document.parsed_rules if one.rule is not None]
        what = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        report.right.append(f"{name}: {counted(len(kinds), 'rule')}{f' ({what})' if what else ''}")


def _check_tests(path: Path, report: CheckReport) -> None:
    from kproxy.tools.rehearse.cases.document import load_cases

    try:
        cases = load_cases(path)
    except DocumentError as error:
        report.add(error.mistakes)
    else:
        report.tests += len(cases)
        report.right.append(f"{path}: {counted(len(cases), 'test')}")
