"""The command line: `kproxy COMMAND …`. Exit codes: 0 ok, 1 failed, 2 usage.

Commands are imported when they are called, not before: the help text and each single command then start in some
hundred milliseconds, whatever the others need.
"""

from __future__ import annotations

import click

from kproxy.base.distribution import DISTRIBUTION
from kproxy.base.terminal import LazyGroup

COMMANDS = {
    "run": ("kproxy.cli.run:command", "Start the proxy."),
    "check": ("kproxy.cli.check:command", "Check rule and config files."),
    "explain": ("kproxy.cli.explain:command", "Say what rules make of an API or a frame, and why."),
    "test": ("kproxy.cli.run_tests:command", "Run the tests of rules, *.test.yaml."),
    "explore": ("kproxy.cli.explore:command", "Find the fault that breaks a program, and the smallest rules for it."),
    "schema": ("kproxy.cli.printouts:schema_command", "Print the JSON Schema of rule or config files, for editors."),
    "ready": (
        "kproxy.cli.admin_commands:ready_command",
        "Say whether a running proxy can serve clients, by its exit code.",
    ),
    "rules": ("kproxy.cli:rules_group", "List and change the rules of a running proxy; list kinds of rules."),
    "faults": ("kproxy.cli.admin_commands:faults_group", "Disable and enable all faults of a running proxy."),
    "config": ("kproxy.cli.admin_commands:config_group", "See and change the config of a running proxy."),
    "connections": (
        "kproxy.cli.admin_commands:connections_group",
        "See, close and recycle the connections of a running proxy.",
    ),
    "user": ("kproxy.cli.user:command", "Make the file of users who may log in to kproxy."),
    "tail": (
        "kproxy.cli.tail:command",
        "See what passes through a running proxy, or passed in captures and event files.",
    ),
    "view": (
        "kproxy.cli.tui:command",
        "See, hold and change what passes, in a terminal; needs the extra `view`.",
    ),
    "show": ("kproxy.cli.show:command", "Print one exchange of a capture: all fields with their bytes."),
    "stats": ("kproxy.cli.stats:command", "Count what is in captures and event files."),
    "verify": (
        "kproxy.cli.verify:command",
        "Say which of Kafka's guarantees recorded traffic breaks, and prove it.",
    ),
    "capture": (
        "kproxy.cli.capture:command",
        "Record the traffic of a running proxy in a file, or describe a file.",
    ),
    "replay": (
        "kproxy.cli.replay:command",
        "Send recorded requests to a cluster again, or serve recorded answers to clients.",
    ),
    "redact": ("kproxy.cli.redact:command", "Write a capture without what users wrote."),
    "protocol": ("kproxy.cli.printouts:protocol_command", "List the protocol's APIs, or print the grammar of one."),
    "decode": ("kproxy.cli.decode:command", "Print the fields of frames."),
    "audit": (
        "kproxy.lake.commands:group",
        "Turn what was recorded into answers, with Spark; needs the extra `pipeline`.",
    ),
    "completion": (
        "kproxy.cli.printouts:completion_command",
        "Print what makes bash, zsh or fish complete kproxy's commands.",
    ),
    "webhook": ("kproxy.cli.run:webhook_command", "Put kproxy into annotated pods of Kubernetes, as a sidecar."),
    "mock": ("kproxy.cli.mock:command", "Serve a mock cluster, for tests in any language; needs the extra `demo`."),
    "demo": ("kproxy.cli.demo:command", "Show kproxy at work on a mock cluster; needs the extra `demo`."),
    "help": ("kproxy.cli:help_group", "Print the reference of the filter language."),
}
"""Commands by name: each is (`module:command`, description in one line)."""

RULES = {
    "kinds": ("kproxy.cli.kinds:command", "List the kinds of rules, or show one with its fields."),
    "list": ("kproxy.cli.admin_commands:list_rules", "List all rules with their counters."),
    "show": ("kproxy.cli.admin_commands:show_rule", "Show all fields of one rule."),
    "add": ("kproxy.cli.admin_commands:add", "Add the rules of a file, all or none."),
    "rm": ("kproxy.cli.admin_commands:remove", "Remove rules of the API or of tests."),
    "enable": ("kproxy.cli.admin_commands:enable", "Enable rules."),
    "disable": ("kproxy.cli.admin_commands:disable", "Disable rules and keep their counters."),
    "reset": ("kproxy.cli.admin_commands:reset", "Reset counters and triggers of rules."),
    "resume": ("kproxy.cli.admin_commands:resume", "Resume the requests that rules hold, and print their number."),
    "wait": ("kproxy.cli.admin_commands:wait", "Wait until a counter of a rule reaches a number."),
    "simulate": (
        "kproxy.lake.commands.answers:simulate_command",
        "Count what rules would do to captured traffic; needs the extra `pipeline`.",
    ),
}
FILTERS = {
    "filters": ("kproxy.cli.filters:command", "Print the filter language of tail, show, stats and captures."),
}
HELP_OPTION = {"help_option_names": ["-h", "--help"]}

rules_group = LazyGroup(
    "rules",
    table=RULES,
    help="List and change the rules of a running proxy, by its admin API; list kinds of rules.\n\n"
    "Output is a table on a terminal, tab-separated lines in pipes. Exit codes: 0 ok, 1 refused, unreachable or "
    "timed out, 2 usage.",
    context_settings=HELP_OPTION,
)
help_group = LazyGroup(
    "help", table=FILTERS, help="Print reference texts; `kproxy COMMAND --help` explains a command.",
    context_settings=HELP_OPTION,
)  # fmt: skip


@click.group(cls=LazyGroup, table=COMMANDS, context_settings=HELP_OPTION)
@click.version_option(package_name=DISTRIBUTION, prog_name="kproxy", message="%(prog)s %(version)s")
def main() -> None:
    """A transparent proxy for Kafka's wire protocol."""
