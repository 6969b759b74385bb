"""The command line as a whole: what it knows, what it imports, how it fails."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest
from click.testing import CliRunner

from kproxy.base.errors import RENAMED
from kproxy.cli import COMMANDS, main
from kproxy.cli.admin_client import Admin

pytestmark = pytest.mark.process


def run(*arguments: str) -> tuple[int, str]:
    """Exit code, and what was printed on both streams."""
    result = CliRunner().invoke(main, list(arguments))

    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_help_names_every_command() -> None:
    """With what it does in one line."""
    code, text = run("--help")

    assert code == 0
    for name, (_, words) in COMMANDS.items():
        assert f"  {name} " in text
        assert words in " ".join(text.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there(name: str) -> None:
    """Each can be imported and explains itself."""
    code, text = run(name, "--help")

    assert code == 0
    assert text.startswith(f"Usage: main {name}")


def test_an_unknown_command_names_the_nearest() -> None:
    """Exit code 2 is for usage."""
    code, text = run("chek", "x")

    assert code == 2
    assert 'unknown command "chek", did you mean "check"?' in text


@pytest.mark.parametrize(("old", "names"), (RENAMED["command"] | RENAMED["option"]).items())
def test_renamed_command_or_option_names_the_new_one(old: str, names: tuple[str, ...]) -> None:
    (new,) = names
    code, text = run(*old.split())

    assert code == 2
    assert f"(renamed to {new})" in text.replace('"', "")
    if " --" in old:
        text = run(old.split(maxsplit=1)[0], "--help")[1]
        assert all(word in text for word in new.split())
    else:
        assert run(*new.split(), "--help")[0] == 0


def test_the_version_is_told() -> None:
    """As the package has it."""
    assert run("--version") == (0, f"kproxy {version('kproxy-kafka')}\n")


LOADS = {  # slow libraries that the help of these commands may load
    "": "ready help rules faults config connections capture test explore audit schema user protocol decode completion",
    "pydantic": "explain check replay view tail show stats verify redact",
    "rich": "demo",
    "asyncio structlog": "run webhook mock",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_help_loads_only_its_libraries(command: str) -> None:
    """A command starts in the time of what it needs. A merged module can make all of its importers slower."""
    program = f"import sys; from kproxy.cli import main\ntry: main(['{command}', '-h'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    slow = {"asyncio", "pydantic", "pyspark", "rich", "starlette", "structlog", "textual", "trio"}
    (allowed,) = [libraries for libraries, commands in LOADS.items() if command in commands.split()]
    assert slow & set(done.stdout.splitlines()[-1].split()) <= set(allowed.split())


def test_process_without_viewers_loads_no_live_view() -> None:
    program = "import sys, kproxy.app.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"kproxy.record.live_view.watch", "kproxy.record.captures", "sqlite3"}.isdisjoint(done.stdout.split())


def test_the_module_can_be_run() -> None:
    """`python -m kproxy` is the same program."""
    done = subprocess.run(
        [sys.executable, "-m", "kproxy", "rules", "kinds", "advertize"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert 'unknown kind "advertize", did you mean "advertise"?' in done.stderr


def test_admin_other_server_names_response_and_url() -> None:
    error = Admin("http://localhost:9").other_server("status 404")
    assert str(error) == "expected kproxy's admin API, got status 404 (at http://localhost:9)"


@pytest.mark.parametrize(("origin", "shown"), [("file", True), ("api", False), ("test", False)])
def test_rules_list_shows_errors_of_files_only(origin: str, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The users of the API and of tests have received their errors."""
    last = {"origin": origin, "at": "12:00", "mistakes": [{"where": "a.yaml:1:1", "message": "unknown key"}]}
    monkeypatch.setattr(Admin, "__call__", lambda *words, **options: {"rules": [], "last_rejection": last})
    _, text = run("rules", "list", "--admin", "http://127.0.0.1:9190")

    assert ("a.yaml:1:1: unknown key" in text) == shown
