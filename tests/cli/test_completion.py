"""The tab key, in a real bash; and that there is help for all that it offers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kproxy.cli import COMMANDS, main
from kproxy.cli.printouts import SHELLS

pytestmark = pytest.mark.process


def completed(typed: str, cwd: Path) -> set[str]:
    """What bash offers after these words, the last of which is not finished."""
    words = typed.split(" ")
    script = f"""
        eval "$(kproxy completion bash)"
        [[ $(complete -p kproxy) == *_kproxy_completion* ]] || exit 9
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)}) COMP_CWORD={len(words) - 1}
        _kproxy_completion kproxy
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=cwd, env={**os.environ, "PATH": path},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return set(ran.stdout.split())


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    """Names of commands, those of groups within them, options."""
    assert completed("kproxy c", tmp_path) == {name for name in COMMANDS if name.startswith("c")}
    assert completed("kproxy rules en", tmp_path) == {"enable"}
    assert completed("kproxy run --up", tmp_path) == {"--upstream"}


@pytest.mark.parametrize("shell", SHELLS)
def test_there_is_a_script_for_each_shell(shell: str) -> None:
    """It asks kproxy itself; a shell that nobody knows is a mistake of usage."""
    found = CliRunner().invoke(main, ["completion", shell])
    unknown = CliRunner().invoke(main, ["completion", "csh"])

    assert found.exit_code == 0
    assert f"_KPROXY_COMPLETE={shell}_complete" in found.output
    assert unknown.exit_code == 2
    assert all(name in unknown.output for name in SHELLS)


def commands(group: click.Group, *above: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*above, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)


def test_every_command_and_option_has_its_help() -> None:
    """So that `--help` is the manual."""
    missing = []
    for words, command in commands(main):
        if not command.help:
            missing.append(" ".join(words))
        missing += [
            f"{' '.join(words)} {option.opts[0]}"
            for option in command.params
            if isinstance(option, click.Option) and not option.help and not option.hidden
        ]
    assert missing == []
