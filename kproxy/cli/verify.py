"""`kproxy verify`: finds violations of Kafka's guarantees in recorded traffic.

Exit codes: 0 without a finding of --fail-on, 1 with one, 2 for bad files or options.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import click
import msgspec

from kproxy.base.errors import InputError, InternalError, KproxyError, plural
from kproxy.base.named_file import reason
from kproxy.base.terminal import StyledLine, in_line, print_styled, say
from kproxy.cli.admin_client import Admin, with_admin
from kproxy.cli.exchange_input import judge
from kproxy.cli.reports import FORMS, Case, Level, Outputs, Problem, Report, report_option, write_report
from kproxy.cli.verify_input import ENDINGS, JudgedCapture, JudgedRecording, by_time, filtered, recordings, told
from kproxy.record.events.schema import REQUEST_EVENT
from kproxy.record.filters import Filter
from kproxy.rules.values.quantities import parse_duration, parse_size
from kproxy.tools.verify import Finding, Verdict, Verifier, VerifyTerms, checks, explain
from kproxy.tools.verify.finding import LEVELS, FindingLevel
from kproxy.tools.verify.options import LONGEST_SHOWN, BadTerm, FailOn, MissingPart, fail_on, outside, terms_of
from kproxy.tools.verify.report import MOST_SHOWN, finding_lines, report_html, report_json, report_lines

from .filters import make_filter
from .start import Interruption

SUITE = "kproxy verify"
LOOK = 2.0  # shortest time between two verdicts, in seconds
SHARE = 10  # time between two verdicts, in durations of one: most of the time is for reading
MOST_TOLD = 1000  # findings that are printed at once; the verdict has the others
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Quantity(click.ParamType[Any]):
    """Option type for a quantity with a unit, such as 50ms or 1GB."""

    def __init__(self, name: str, parse: Callable[[Any], Any]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            read = float(value) if isinstance(value, str) and value.isdecimal() else self.parse(value)
            if not isfinite(read):
                raise ValueError(f"expected a smaller number, got {value[:LONGEST_SHOWN]}")
            return read
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION, SIZE = Quantity("DURATION", parse_duration), Quantity("SIZE", parse_size)


@click.command("verify")
@click.argument("files", metavar="[FILE…]", nargs=-1)
@click.option("--view", type=click.Choice(["clients", "brokers", "both"]), default="both", show_default=True,
              help="Verify the clients' view of the exchanges, the brokers' view, or both.")  # fmt: skip
@click.option("--only", metavar="CHECK,…", help="Do these checks only.")
@click.option("--without", metavar="CHECK,…", help="Leave these checks out.")
@click.option("--list", "listed", is_flag=True, help="Print all checks with their definitions.")
@click.option("--level", type=click.Choice(LEVELS), default="suspect", show_default=True, help="Lowest printed level.")
@click.option("--fail-on", metavar="LEVEL,CHECK=LEVEL,…",
              help="Lowest levels that end with exit code 1: of all checks, and of single ones. "
              "(default: those of --list, proved for most checks)")  # fmt: skip
@click.option("--compacted", metavar="TOPIC,…", help="Topics that brokers compact.")
@click.option("--not-compacted", metavar="TOPIC,…", help="Topics that brokers never compact.")
@click.option("--retention", metavar="TOPIC=DURATION,…", help="How long brokers keep the records of topics.")
@click.option("--assume-complete", is_flag=True, help="Treat the files as all traffic of their topics and groups.")
@click.option("--follow", "following", is_flag=True, help="Verify the traffic of a running proxy, until Ctrl-C.")
@click.option("--filter", "filter_text", metavar="FILTER", default="", help="Verify matching exchanges only.")
@click.option("--records", is_flag=True, help="Compare every record, not only headers of batches.")
@click.option("--skew", type=DURATION, default="0", metavar="DURATION",
              help="Largest difference of the clocks of several files, such as 50ms.")  # fmt: skip
@click.option("--memory", type=SIZE, default="1GB", show_default=True, metavar="SIZE", help="Memory for the history.")
@report_option(*FORMS)
@click.option("--html", metavar="FILE", help="Also write the verdict as a page.")
@click.option("-n", "--number", type=click.IntRange(min=1), default=MOST_SHOWN, show_default=True,
              help="Largest number of printed findings of a check.")  # fmt: skip
@with_admin
def command(
    admin: Admin, *, files: tuple[str, ...], listed: bool, following: bool, level: FindingLevel, **given: Any
) -> None:
    """Find violations of Kafka's guarantees in the traffic in FILEs: lost, duplicated or changed records, lost commits,
    reads of aborted transactions. FILEs are captures of kproxy or tcpdump, event files of the audit, or folders of
    them; - is standard input. With --follow, the traffic of a running proxy is verified.

    Only the files are read. A check is "clean" only if the files could show a violation; otherwise it is
    "not checked". The exit code is 1 for a finding of --fail-on, and 2 for unreadable files. Ctrl-C ends the reading
    with the verdict so far.
    """
    if listed:
        print_checks()
        return
    check_input(files, following, given)
    output, html, number, filter_text = (given.pop(name) for name in ("output", "html", "number", "filter_text"))
    try:
        policy = fail_on(given.pop("fail_on"))
        terms = terms_given(max(level, policy.lowest, key=LEVELS.index), given)
    except BadTerm as error:
        raise click.UsageError(f"--{error.name.replace('_', '-')}: {error}") from None
    form = ReportForm(level, policy, output, html, number)
    place = "the input"  # of errors without a file
    title, names = (f"the proxy at {admin.url}", (admin.url,)) if following else (titled(files), files)
    try:
        wanted = make_filter(filter_text)
        if following:
            verdict = follow(admin, wanted, terms, form.write)
        else:
            verdict = verdict_of(files, wanted, terms, quiet=output.printed != "text")
        policy.decide(verdict, level)
        place = "standard output"
        form.report(verdict, title, names)
    except KproxyError as error:
        raise bad(str(error)) from None
    except OSError as error:
        raise bad(f"{error.filename or place}: {reason(error)}") from None
    raise click.exceptions.Exit(verdict.exit_code or 0)


class ReportForm(NamedTuple):
    """Form of a report.

    `level`: the lowest level of findings that do not fail the verification. `html`: file of the page, None for none.
    `number`: printed findings of a check.
    """

    level: FindingLevel
    policy: FailOn
    output: Outputs
    html: str | None
    number: int

    def wants(self, finding: Finding) -> bool:
        return self.policy.fails(finding) or LEVELS.index(finding.level) <= LEVELS.index(self.level)

    def write(self, finding: Finding) -> None:
        if self.wants(finding) and self.output.printed == "text":
            print_styled([*finding_lines(finding), StyledLine("")])

    def report(self, verdict: Verdict, title: str, names: Sequence[str]) -> None:
        """Print a verdict and write its page. Raises OSError."""
        if self.html is not None:
            Path(self.html).write_text(report_html(verdict, title), "utf-8")
        if self.output.printed == "text":
            print_styled(report_lines(verdict, title, self.number))
        if self.output:
            write_report(self.report_of(verdict, names), self.output, report_json(verdict, names))

    def report_of(self, verdict: Verdict, names: Sequence[str]) -> Report:
        """Return a case for each check. It fails for findings of --fail-on; others are its warnings and notes.

        The file of a problem is the recording if there is only one.
        """
        done = {*verdict.clean, *verdict.not_shown, *(finding.check for finding in verdict.findings)}
        file = names[0] if len(names) == 1 and Path(names[0]).is_file() else ""
        cases = {check: Case(SUITE, check, file=file) for check in checks() if check in done}
        for finding in verdict.findings:
            level: Level = "note" if finding.level == "note" else "warning"
            if self.policy.fails(finding):
                level, cases[finding.check].outcome = "error", "failed"
            details = [line.text.strip() for line in finding_lines(replace(finding, says=""))][1:]
            text = f"{finding.level}: {finding.says}"
            problem = Problem(finding.check, level, text, file, about=finding.about, details=details)
            problem.identity = finding.check, finding.about  # as in the JSON
            cases[finding.check].problems.append(problem)
        skipped = [Case(SUITE, check, "skipped", reason=why, file=file) for check, why in verdict.not_checked.items()]
        rules = {name: check.definition for name, check in checks().items()}
        missing = [f"missing: {part}" for part in verdict.incomplete]
        return Report("verify", verdict.exit_code or 0, verdict.reason, [*cases.values(), *skipped], rules, missing)


def check_input(files: Sequence[str], following: bool, given: Mapping[str, Any]) -> None:
    """Check that there are files or a proxy, and no options of the other. Raises UsageError."""
    if not following:
        if not files:
            raise click.UsageError("name a capture or an event file, or - for standard input")
        inputs = [*map(os.path.realpath, files)]
        written = [("--html", given["html"] or ""), *(("--output", path) for path in given["output"].files.values())]
        for option, path in written:
            if path.endswith((*ENDINGS, ".ndjson", ".gz")) or (path and os.path.realpath(path) in inputs):
                raise click.UsageError(f"{option}: expected another file than a recording, got {in_line(path)}")
        return
    if files:
        raise click.UsageError("--follow: expected no files, since it reads from a running proxy")
    if given["view"] == "brokers":
        raise click.UsageError(
            "--follow: expected --view clients, since the stream lacks the brokers' side (record with --side both)"
        )
    if given["records"]:
        raise click.UsageError(
            "--follow: expected no --records, since the stream lacks records (record with --payload full)"
        )
    if given["assume_complete"]:
        raise click.UsageError("--follow: expected no --assume-complete, since the stream lacks earlier traffic")


def bad(message: str) -> click.exceptions.Exit:
    """Print an error of the input. Return an exit with code 2."""
    say(f"kproxy: {message}", err=True)
    return click.exceptions.Exit(2)


def terms_given(level: FindingLevel, given: Mapping[str, Any]) -> VerifyTerms:
    """Return the options' terms. Raises BadTerm."""
    read = dict(given) | {"level": level, "memory": int(given["memory"]), "retention": {}}
    for name in ("only", "without", "compacted", "not_compacted"):
        read[name] = None if given[name] is None else words(given[name])
        if read[name] == []:
            raise BadTerm(name, "expected a name, got none")
    if given["retention"] is not None and not words(given["retention"]):
        raise BadTerm("retention", "expected TOPIC=DURATION such as orders=7d, got none")
    for word in words(given["retention"]):
        topic, sign, time = word.rpartition("=")
        if not sign or not topic:
            raise BadTerm("retention", f"expected TOPIC=DURATION such as orders=7d, got {word}")
        if topic in read["retention"]:
            raise BadTerm("retention", f"expected one duration, got {read['retention'][topic]} and {time} (at {topic})")
        read["retention"][topic] = time
    return terms_of(read)


def words(given: str | None) -> list[str]:
    return [one.strip() for one in (given or "").split(",") if one.strip()]


def verdict_of(files: Sequence[str], wanted: Filter, terms: VerifyTerms, *, quiet: bool) -> Verdict:
    """Return the verdict of recordings; after Ctrl-C, of the part that was read. Raises KproxyError, OSError.

    Files with findings are read a second time to explain these.
    """
    found = recordings(files, terms.clock)
    terms = for_sides(found, terms)
    verifier = Verifier(terms)
    interruption = Interruption()
    for exchange in interruption.items(by_time(found, wanted)):
        verifier.add(exchange)
    terms.incomplete.extend(told(found))
    if interruption.asked:
        terms.incomplete.append(outside(f"it was read up to exchange {verifier.exchanges:,} only, until Ctrl-C"))
    for one in found:
        verifier.note_summarized(one.summarized)
    counted = [one.strangers for one in found if one.strangers is not None]
    verifier.strangers = sum(counted) if counted else None
    if wanted:
        terms.incomplete.append(filtered(f"only exchanges that fit {wanted} were looked at", str(wanted)))
    verdict = verifier.verdict()
    if not interruption.asked:
        check_read(verifier, verdict, titled(files))
    if "-" not in files and any(one.batches for one in verdict.findings):
        explain(verdict, by_time(recordings(files), wanted))
    if wanted.unknown and not quiet:
        say(
            f"kproxy: {plural(wanted.unknown, 'exchange')} could not be judged by the filter, the last: {wanted.why}",
            err=True,
        )
    return verdict


def check_read(verifier: Verifier, verdict: Verdict, title: str) -> None:
    """Check that there are exchanges, and the topics that options name. Raises InputError."""
    if not verdict.exchanges and not verifier.front_reader.counts.not_kept:
        why = "; ".join((title, *verdict.incomplete))
        raise InputError(f"expected exchanges of clients, got none (at {why})")
    for name in ("compacted", "not_compacted", "retention"):
        topics = sorted(getattr(verifier.terms, name))  # those of several recordings may be listed
        if topics and not any(view.state.knows(topic) for view in verifier.views for topic in topics):
            option = name.replace("_", "-")
            raise InputError(f"expected a topic of {title}, got {', '.join(topics)} (at --{option})")


def for_sides(found: Sequence[JudgedRecording], terms: VerifyTerms) -> VerifyTerms:
    """Return the terms without the brokers' view if a recording lacks it. Raises InputError for a recording without a
    required view."""
    for one in found:
        if one.side == "broker":
            raise InputError(f"{one.path} has only what was something else at the broker, so most is missing in it")
        if one.side == "client" and terms.view == "brokers":
            raise InputError(f"{one.path} has only what clients saw; captures with --side both have more")
        if one.side == "client" and isinstance(one, JudgedCapture):  # events have the brokers' names
            terms = replace(terms, client_names=True)
    if terms.view == "both" and any(one.side == "client" for one in found):
        return replace(terms, view="clients")
    return terms


def titled(files: Sequence[str]) -> str:
    first = "standard input" if files[0] == "-" else files[0]
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"


def print_checks() -> None:
    for one in checks().values():
        say(f"{one.name:22}{one.level:9}{one.definition}")
        if one.fails != "proved":
            say(f"{'':31}fails on: {one.fails}")
        if one.not_proved:
            say(f"{'':31}not proved: {one.not_proved}")


class FollowedProxy:
    """Traffic of a running proxy after the first line of its stream.

    `dropped`: exchanges that came faster than they were read; `dropped_apis`: their APIs if the proxy reports them.
    `unknown`: exchanges that the filter could not judge. `ended`: the reason of the end, empty before it.
    """

    def __init__(self, admin: Admin, wanted: Filter) -> None:
        self.admin, self.wanted = admin, wanted
        self.listening = False
        self.dropped = self.unknown = 0
        self.dropped_apis: Counter[str] = Counter()
        self.ended = ""

    def lines(self) -> Generator[dict[str, Any]]:
        """Yield the lines of the stream. Raises KproxyError if the server is not kproxy, or ends before a line."""
        try:
            for line in self.admin.stream("/api/tail", {"filter": str(self.wanted) or None}):
                try:
                    told = _decode(line)
                    judge(REQUEST_EVENT.name, told.get("request") or {})
                except msgspec.DecodeError:
                    raise self.admin.other_server("a line that is not an event") from None
                if not self.listening:
                    self.listening = True
                    say(f"following the proxy at {self.admin.url}, Ctrl-C ends it", err=True)
                yield told
        except InternalError as error:
            if not self.listening:
                raise
            self.ended = str(error)

    def missing(self) -> list[MissingPart]:
        """Return the parts of the traffic that were not read until now."""
        parts: list[MissingPart] = []
        if self.dropped:
            apis = frozenset(self.dropped_apis) if sum(self.dropped_apis.values()) == self.dropped else None
            text = f"{plural(self.dropped, 'exchange')} left out: they came faster than they were read"
            parts.append(MissingPart(text, apis, apis))
        if self.unknown:
            parts.append(MissingPart(f"{plural(self.unknown, 'exchange')} could not be judged by the filter"))
        if self.wanted:
            parts.append(filtered(f"only exchanges that fit {self.wanted} were looked at", str(self.wanted)))
        return parts


def follow(admin: Admin, wanted: Filter, terms: VerifyTerms, tell: Callable[[Finding], object]) -> Verdict:
    """Verify a proxy's traffic until Ctrl-C or its end. Raises KproxyError.

    `tell` receives each finding once for each of its levels. Later exchanges may still disprove one.
    """
    terms = replace(terms, view="clients")
    proxy, verifier, told = FollowedProxy(admin, wanted), Verifier(terms), set[tuple[str, str, str]]()
    due = monotonic() + LOOK
    with closing(proxy.lines()) as lines:
        for line in Interruption().items(lines):
            if "request" in line:
                verifier.take_event(line["request"])
            proxy.dropped += line.get("dropped") or 0
            proxy.dropped_apis.update(line.get("apis") or {})
            proxy.unknown += line.get("unknown") or 0
            began = monotonic()
            if began < due:
                continue
            terms.incomplete[:] = proxy.missing()
            for finding in verifier.verdict(so_far=True).findings:
                key = finding.check, finding.about, finding.level
                if key not in told and len(told) < MOST_TOLD:
                    told.add(key)
                    tell(finding)
            due = monotonic() + max(LOOK, SHARE * (monotonic() - began))
    if proxy.ended:
        say(f"kproxy: {proxy.ended}", err=True)
    terms.incomplete[:] = proxy.missing()
    return verifier.verdict()
