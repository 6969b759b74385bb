"""The pytest plugin that looks for the fault that breaks a test: `pytest --kproxy-explore`.

It comes with kproxy's own plugin (kproxy.testing.pytest_plugin), wherever kproxy is installed, so it imports nothing
but pytest until it is asked for. Then it does one of two things: in the user's pytest it explores each test that uses
the fixture `kproxy`; in the pytest of its own that it starts for that, it forks for each run of the test.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from .option_table import OPTIONS

HIDDEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("serve", {"type": int}),
    ("item", {}),
    ("upstream", {}),
)
"""Options for the pytest that forks: a socket, the id of the test, and the address of a cluster that is there."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--kproxy-explore` and the options that begin with it."""
    import argparse

    group = parser.getgroup("kproxy")
    group.addoption("--kproxy-explore", action="store_true", help="Run tests that use the fixture kproxy again and "
                    "again, each time with another fault.")  # fmt: skip
    for option in OPTIONS:
        group.addoption(f"--kproxy-explore-{option.name}", **option.of_argparse)
    for name, arguments in HIDDEN:
        group.addoption(f"--kproxy-explore-{name}", help=argparse.SUPPRESS, **arguments)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and what explores or forks where that is asked for."""
    config.addinivalue_line(
        "markers", "kproxy_explore(runs, faults, only, ignore): how --kproxy-explore explores this test (kproxy)"
    )
    descriptor = config.getoption("--kproxy-explore-serve")
    if descriptor is not None:
        from kproxy.explore.runs.pytest_runs import RunServer

        config.pluginmanager.register(RunServer(config, descriptor), "kproxy-run-server")
    elif config.getoption("--kproxy-explore") and not config.getoption("collectonly", False):
        from kproxy.explore.pytest_session import ExploredSession

        config.pluginmanager.register(ExploredSession(config), "kproxy-explored-session")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Tell a test that runs under the rule file of a finding which faults these are."""
    value: Any = yield
    if fixturedef.argname == "kproxy" and hasattr(value, "faults"):
        from kproxy.testing.pytest_plugin import rule_files

        if files := rule_files(request):
            from kproxy.explore.plan import faults_of_files

            value.faults = faults_of_files(files)
    return value
