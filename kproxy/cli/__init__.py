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
    "check": ("kproxy.cli.check:command", "Check rule and config files, every mistake at once."),
    "explain": ("kproxy.cli.explain:command", "Say what rules make of an API or a frame, and why."),
    "test": ("kproxy.cli.run_tests:command", "Run the tests of rules, *.test.yaml."),
    "explore": ("kproxy.cli.explore:command", "Find the fault that breaks a program, and the smallest rules for it."),
    "kinds": ("kproxy.cli.kinds:command", "List the kinds of rules, or show one with its fields."),
    "schema": ("kproxy.cli.printouts:schema_command", "Print the JSON Schema of rule or config files, for editors."),
    "ready": (
        "kproxy.cli.admin_commands:ready_command",
        "Say whether a running proxy can serve clients, by its exit code.",
    ),
    "rules": ("kproxy.cli.admin_commands:rules_group", "See and change the rules of a running proxy."),
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
    "show": ("kproxy.cli.show:command", "Print one exchange of a capture: all fields beside their bytes."),
    "stats": ("kproxy.cli.stats:command", "Count what is in captures and event files."),
    "verify": (
        "kproxy.cli.verify:command",
        "Say which of Kafka's guarantees recorded traffic breaks, and prove it.",
    ),
    "capture": (
        "kproxy.cli.capture:command",
        "Record what passes through a running proxy in a file, or say what is in one.",
    ),
    "replay": (
        "kproxy.cli.replay:command",
        "Send recorded requests to a cluster again, or serve recorded answers to clients.",
    ),
    "redact": ("kproxy.cli.redact:command", "Write a capture without what users wrote."),
    "filter-help": (
        "kproxy.cli.filters:command",
        "Print the filter language of tail, show, stats and captures.",
    ),
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
}
"""Commands by name: each is (`module:command`, description in one line)."""


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=DISTRIBUTION, prog_name="kproxy", message="%(prog)s %(version)s")
def main() -> None:
    """A transparent proxy for Kafka's wire protocol."""
