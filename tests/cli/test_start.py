"""`kproxy` as a process: closed standard streams, and output that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
KPROXY = f"{sys.executable} -m kproxy"


def shell(command: str, folder: Path) -> tuple[int, str]:
    """Exit code and standard error."""
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", ["protocol", "rules kinds", "--version", "protocol --help"])
def test_a_full_disk_under_the_output_is_one_line(arguments: str, tmp_path: Path) -> None:
    """It fails with exit code 1 and says why, without a traceback."""
    assert shell(f"{KPROXY} {arguments} > /dev/full", tmp_path) == (1, "kproxy: no space left on device\n")


def test_a_full_disk_under_both_outputs_is_an_exit_code(tmp_path: Path) -> None:
    """There is nowhere to say it."""
    assert shell(f"{KPROXY} kinds > /dev/full 2> /dev/full", tmp_path) == (1, "")


def test_closed_streams_are_empty(tmp_path: Path) -> None:
    """Standard input holds nothing, and what goes to a closed output is dropped."""
    assert shell(f"{KPROXY} decode - <&-", tmp_path) == (1, "kproxy: no frame in the input\n")
    assert shell(f"{KPROXY} protocol >&-", tmp_path) == (0, "")


def test_no_file_takes_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """A socket with number 2 would be sent what is printed to standard error."""
    code = "from kproxy.cli.start import open_closed_streams; import os; open_closed_streams(); "
    code += "open('out', 'w').write(' '.join(os.readlink(f'/proc/self/fd/{n}') for n in range(3)))"
    shell(f'{sys.executable} -c "{code}" <&- >&- 2>&-', tmp_path)

    assert (tmp_path / "out").read_text() == " ".join([os.devnull] * 3)


RULES = "rules: [{name: r, kind: python, match: {api: Heartbeat}, call: 'planted_hooks:f'}]\n"


@pytest.mark.parametrize(
    ("path", "starter", "code"),
    [
        (None, "-m kproxy", 1),
        (":", "-m kproxy", 1),
        (":", "-P -m kproxy", 1),
        (".", "-m kproxy", 0),
        (".", "-P -m kproxy", 0),
    ],
)
def test_python_rule_module_in_current_folder_not_found(
    path: str | None, starter: str, code: int, tmp_path: Path
) -> None:
    """Unless PYTHONPATH names it; an empty element of it does not."""
    (tmp_path / "planted_hooks.py").write_text("def f(exchange, message):\n    pass\n")
    (tmp_path / "rules.yaml").write_text(RULES)
    more = {} if path is None else {"PYTHONPATH": path}
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *starter.split(), "check", "rules.yaml"],
        cwd=tmp_path, env=inherited | more, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert ("the current folder is not searched" in done.stdout + done.stderr) is bool(code)
