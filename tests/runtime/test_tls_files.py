"""Files of TLS that are something else than they should be: nothing waits for them, and what was read before stays."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio

from kproxy.base.errors import InternalError
from kproxy.record.component_collectors import first_expiry
from kproxy.rules.values.tls import ListenerTls, UpstreamTls
from kproxy.runtime.io.tls import ClientTls, Reloading, upstream_files
from tests.support.certificates import Authority


def pipe(file: Path) -> None:
    os.mkfifo(file)


def device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def large(file: Path) -> None:
    with file.open("wb") as made:
        made.truncate(1 << 30)


def folder(file: Path) -> None:
    file.mkdir()


def missing(file: Path) -> None:
    """Leaves nothing there."""


def drop(logger: Any, level: str, fields: Any) -> Any:
    raise structlog.DropEvent


PLACES = ("listener cert", "listener key", "listener client_ca", "cluster ca", "cluster cert", "cluster key")


def made(place: str, files: dict[str, str], log: Any) -> Reloading:
    """The context of a listener or of a cluster. The settings are checked when the config is read; files change
    later."""
    if place.startswith("listener"):
        config = ListenerTls.model_construct(**{"min_version": "1.2", **files})
        return ClientTls(config, 1.0, trio.Lock(), log).files
    renamed = {"ca" if name == "client_ca" else name: file for name, file in files.items()}
    return upstream_files(UpstreamTls.model_construct(**{"min_version": "1.2", **renamed}), log)


@pytest.mark.parametrize("put", [pipe, device, large, folder, missing])
@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_is_none_leaves_what_was_read(place: str, put: Callable[[Path], None], tmp_path: Path) -> None:
    """Of every setting that names one, while kproxy runs and at its start; the next good one is taken."""
    authority, log = Authority(tmp_path), structlog.wrap_logger(None, processors=[drop])
    pem = authority.issue("localhost").read_bytes()
    files = {name: tmp_path / f"{name}.pem" for name in ("cert", "key", "client_ca")}
    for name, file in files.items():
        file.write_bytes(authority.file.read_bytes() if name == "client_ca" else pem)
    named = {name: str(file) for name, file in files.items()}
    reloading = made(place, named, log)
    before = reloading.get()

    setting = place.partition(" ")[2]
    bad = files["client_ca" if setting == "ca" else setting]
    good = bad.read_bytes()
    bad.unlink()
    put(bad)
    assert reloading.get() is before
    with pytest.raises(InternalError, match="cannot be used"):
        made(place, named, log)
    with pytest.raises(OSError):
        first_expiry(str(bad))

    bad.rmdir() if put is folder else bad.unlink(missing_ok=True)
    bad.write_bytes(good)
    assert reloading.get() is not before
