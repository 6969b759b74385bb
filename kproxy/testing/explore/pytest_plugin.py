"""Pytest plugin of `pytest --kproxy-explore`. Each pytest loads it, so it imports nothing until the option is used."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from .options import OPTIONS

RENAMED = {"--kproxy-explore-drip": "--kproxy-explore-one-batch-per-fetch"}  # removed after 0.1, as in base/errors.py
# of the pytest that forks: socket, test id, cluster address
HIDDEN: tuple[tuple[str, dict[str, Any]], ...] = (("serve", {"type": int}), ("item", {}), ("upstream", {}))


def pytest_addoption(parser: pytest.Parser) -> None:
    import argparse

    group = parser.getgroup("kproxy")
    group.addoption("--kproxy-explore", action="store_true", help="Run tests that use the fixture kproxy again and "
                    "again, each time with another fault.")  # fmt: skip
    for option in OPTIONS:
        group.addoption(f"--kproxy-explore-{option.name}", **option.of_argparse)
    for old, new in RENAMED.items():
        group.addoption(old, help=argparse.SUPPRESS, nargs="?", type=partial(reject_renamed, old, new), const="")
    for name, arguments in HIDDEN:
        group.addoption(f"--kproxy-explore-{name}", help=argparse.SUPPRESS, **arguments)


def reject_renamed(old: str, new: str, _value: str) -> None:
    raise pytest.UsageError(f"unknown option {old} (renamed to {new})")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "kproxy_explore(runs, faults, only, ignore): how --kproxy-explore explores this test (kproxy)"
    )
    descriptor = config.getoption("--kproxy-explore-serve")
    if descriptor is not None:
        from kproxy.testing.explore.runs.pytest_runs import RunServer

        config.pluginmanager.register(RunServer(config, descriptor), "kproxy-run-server")
    elif config.getoption("--kproxy-explore") and not config.getoption("collectonly", False):
        from .pytest_session import ExploredSession

        config.pluginmanager.register(ExploredSession(config), "kproxy-explored-session")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Set the faults of a test that runs under the rule file of a finding."""
    value: Any = yield
    if fixturedef.argname == "kproxy" and hasattr(value, "faults"):
        from kproxy.testing.pytest_plugin import rule_files

        if files := rule_files(request):
            from .plan import faults_of_files

            value.faults = faults_of_files(files)
    return value
