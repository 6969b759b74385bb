"""`kproxy completion SHELL`: what makes a shell complete kproxy's commands, options and file names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kproxy.terminal import say

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_KPROXY_COMPLETE"
"""What the script sets when it asks kproxy what might follow; the name is click's for a program called kproxy."""


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
