"""`kproxy explore`: runs a program repeatedly through kproxy, with another fault in each run."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kproxy.base.errors import DocumentError, InputError, KproxyError, plural
from kproxy.base.named_file import reason
from kproxy.base.terminal import say
from kproxy.cli.reports import FORMS, Case, Outcome, Problem, Report, log_line, report_option, write_report
from kproxy.testing.explore.options import OPTIONS

if TYPE_CHECKING:
    from kproxy.testing.explore.result import Exploration, FaultFinding

DEFAULT_SAVE = "explored"
NOT_IN_REPLAYS = (
    "for", "faults", "depth", "only", "report", "baseline", "update", "first", "until-covered", "save",
    "output",
)  # fmt: skip


def exploration_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(OPTIONS):
        function = click.option(f"--{option.name}", **option.of_click)(function)
    return function


@click.command("explore", context_settings={"allow_interspersed_args": False})
@click.option("--upstream", metavar="HOST:PORT,…", default="", help="Brokers, instead of a mock cluster for each run.")
@click.option("--before", metavar="CMD", default="", help="Command of a shell before each run, such as to make topics.")
@click.option("--check", metavar="CMD", default="", help="Command of a shell that judges what a run has left.")
@click.option("--rules", metavar="FILE", multiple=True, help="Rule file that is in force in all runs.")
@exploration_options
@click.option("--seed", metavar="N", type=int, help="Breaks ties in the order, and seeds the chances in rules.")
@click.option("--replay", metavar="FILE", help="Rule file of a finding: run CMD under it, once or --runs times.")
@click.option("--save", metavar="FOLDER", default=DEFAULT_SAVE, show_default=True, help="Where rule files are written.")
@report_option(*(form for form in FORMS if form != "sarif"))  # a finding has no place in a file
@click.argument("words", metavar="CMD…", nargs=-1, required=True)
@click.pass_context
def command(ctx: click.Context, /, words: tuple[str, ...], **given: Any) -> None:
    """Find the fault that breaks a program, in any language: kproxy explore [OPTIONS] -- CMD…

    The program runs twice without faults, then repeatedly, each time with another fault that a cluster can show. It
    finds its brokers in KPROXY_BOOTSTRAP. --before and --check find them without faults in KPROXY_DIRECT. KPROXY_RUN is
    the number of the run.

    A run fails if --check exits with another code than 0, or CMD if there is no --check. A run also fails if CMD hangs,
    or if its exchanges prove that a guarantee of Kafka is broken (kproxy verify). With --check, another exit code of
    CMD counts like an exception of a test: a fatal fault may cause it. Each failure is confirmed, shrunk, and saved as
    a rule file.

    Exit code 0 if nothing new was found, 1 if something was, 2 if the exploration was incomplete. With --replay: 0 if
    the program passes, 1 if it fails, 2 if it could not be run or the faults matched nothing. Ctrl-C and SIGTERM end
    the exploration and the processes it started: 1 if something was certain or has failed by then, otherwise 2.
    """
    from kproxy.cli.run import flag
    from kproxy.rules.values.address import parse_server
    from kproxy.rules.values.quantities import checked_seed

    for broker in filter(None, given["upstream"].split(",")):
        flag("--upstream", parse_server, broker.strip())
    if given["seed"] is not None:
        flag("--seed", checked_seed, given["seed"])
    sources = {name: ctx.get_parameter_source(name.replace("-", "_")) for name in NOT_IN_REPLAYS}
    unused = [f"--{name}" for name, source in sources.items() if source is not ParameterSource.DEFAULT]
    if given["replay"] and unused:
        raise click.UsageError(f"--replay: expected none of the options of an exploration, got {', '.join(unused)}")
    from kproxy.testing.explore.database import Baseline
    from kproxy.testing.explore.fork_session import explore_test, write_reports
    from kproxy.testing.explore.options import read_options
    from kproxy.testing.explore.report import exploration_report, report_lines
    from kproxy.testing.explore.result import KnownFailures

    try:
        options = read_options(given)
        baseline = Baseline.read(options.baseline, options.update)
        check_rules(given["rules"])
    except DocumentError as error:
        say(str(error), err=True)
        ctx.exit(2)
    except InputError as error:
        raise click.UsageError(str(error)) from None
    try:
        with interrupted_by_sigterm():
            if given["replay"]:
                ctx.exit(replayed(words, given, options))
            known = KnownFailures(frozenset() if options.update else baseline.known(shlex.join(words)))
            test = test_of(words, given, options, known, options.one_batch_per_fetch)
            result = explore_test(test, options, lambda text: say(log_line(text), err=True))
            output = given["output"]
            if output.printed == "text":
                for line in report_lines(result):
                    say(line)
            lines, is_written = write_reports([result], options, baseline)
            for line in lines:
                say(line, err=output.printed != "text")
            if output:
                document = exploration_report([result])
                write_report(report_of(result, [] if is_written else lines), output, document)
    except KproxyError as error:
        say(f"kproxy: {error}", err=True)
        ctx.exit(2)
    except OSError as error:  # of standard output, for example: click would exit with 1
        say(f"kproxy: {f'{error.filename}: ' if error.filename else ''}{reason(error)}", err=True)
        ctx.exit(2)
    except KeyboardInterrupt:  # again, during the end: click would exit with 1, the code for findings
        say("kproxy: interrupted", err=True)
        ctx.exit(2)
    ctx.exit(result.exit_code() or (0 if is_written else 2))


def report_of(result: Exploration, unwritten: Sequence[str] = ()) -> Report:
    """Return a case for the exploration itself, and one for each finding. Only new findings fail."""
    from kproxy.testing.explore.report import finding_lines

    wrong = [text for text in (result.problem, *(one.run.problem for one in result.broken[:3])) if text]
    if result.exit_code() == 2 and not wrong:
        wrong.append("interrupted" if result.interrupted else "a run was broken")
    wrong += unwritten
    problems = [Problem("incomplete-exploration", "error", text) for text in wrong]
    ended: Outcome = "error" if problems else "skipped" if result.skipped else "passed"
    cases = [Case(result.test, "exploration", ended, problems, result.skipped, seconds=result.seconds)]
    new = {id(finding) for finding in result.new_findings}
    for finding in result.findings:
        signature, is_new = finding.signature, id(finding) in new
        name = f"{signature.outcome}: {', '.join(signature.cause) or 'without faults'} ({signature.short})"
        details = [line.strip() for line in finding_lines(finding, result)][1:]
        problem = Problem(signature.outcome, "error" if is_new else "warning", finding.example.what, details=details)
        reason = "" if is_new else why_not_new(finding)
        cases.append(Case(result.test, name, "failed" if is_new else "skipped", [problem], reason))
    summary = f"{plural(len(new), 'new finding')} of {len(result.findings)} in {plural(len(result.runs), 'run')}"
    return Report("explore", result.exit_code() or 2 * bool(unwritten), summary, cases, notes=result.notes)


def why_not_new(finding: FaultFinding) -> str:
    if finding.known:
        return "known failure"
    return "the test fails without faults" if finding.is_of_test else "not confirmed"


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so a cancelled build reports its findings."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def replayed(words: tuple[str, ...], given: dict[str, Any], options: Any) -> int:
    from kproxy.testing.explore.fork_session import replay_finding
    from kproxy.testing.explore.plan import plan_of_file
    from kproxy.testing.explore.result import NONE_KNOWN

    plan, one_batch_per_fetch = plan_of_file(Path(given["replay"]))
    return replay_finding(
        test_of(words, given, options, NONE_KNOWN, one_batch_per_fetch or options.one_batch_per_fetch),
        plan,
        options,
        say,
    )


def test_of(words: tuple[str, ...], given: dict[str, Any], options: Any, known: Any, one_batch_per_fetch: bool) -> Any:
    from kproxy.testing.explore.fork_session import ExploredTest
    from kproxy.testing.explore.runs.command_runs import CommandTest, server_command

    name = shlex.join(words)
    seed = options.seed
    if seed is None:
        seed = int.from_bytes(sha256(name.encode("utf-8", "surrogateescape")).digest()[:4], "big")
    test = CommandTest(
        words, given["before"], given["check"], given["upstream"], given["rules"], one_batch_per_fetch, seed
    )
    return ExploredTest(
        name, server_command(test), Path.cwd(), Path(given["save"]), seed, not given["upstream"], known,
        rules=given["rules"], replay=replay_line(words, given), replay_limit=" --limit {seconds}s",
    )  # fmt: skip


def replay_line(words: tuple[str, ...], given: dict[str, Any]) -> str:
    """Return the command that replays a finding; `{name}` is a placeholder for its file, `{limit}` for a limit of
    hangs."""
    texts = [f"--{name} {shlex.quote(given[name])}" for name in ("upstream", "before", "check") if given[name]]
    files = [f"--rules {shlex.quote(file)}" for file in given["rules"]]
    seed = [] if given["seed"] is None else [f"--seed {given['seed']}"]
    found = f"--replay {shlex.quote(str(Path(given['save'])))}/{{name}}{{limit}}"
    return " ".join(["kproxy explore", *texts, *files, *seed, found, "--", shlex.join(words)])


def check_rules(files: tuple[str, ...]) -> None:
    """Read rule files once before the runs. Raises DocumentError."""
    from kproxy.rules.document.store import RuleStore
    from kproxy.rules.values.source import Source

    RuleStore().replace_files([Source.open(Path(file)) for file in files], 0.0)
