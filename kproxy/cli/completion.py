"""`kproxy completion SHELL`: prints the script with which a shell completes kproxy's commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kproxy.terminal import say

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_KPROXY_COMPLETE"
"""Environment variable that the script sets to ask kproxy for completions; click derives it from the name kproxy."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print a script for SHELL that completes kproxy's commands, options and file names with the tab key.

    \b
      bash:  echo 'eval "$(kproxy completion bash)"' >> ~/.bashrc        (bash 4.4 or newer)
      zsh:   echo 'eval "$(kproxy completion zsh)"' >> ~/.zshrc
      fish:  kproxy completion fish > ~/.config/fish/completions/kproxy.fish
    """
    from kproxy.cli import main

    found = get_completion_class(shell)
    assert found is not None, "click knows all of them"
    say(found(main, {}, "kproxy", VARIABLE).source())
