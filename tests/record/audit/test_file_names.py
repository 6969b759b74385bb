"""Names of the audit's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.record.audit.event_files import WriterIdentity, file_stem, hidden, published, session_of, stem_of
from kproxy.record.audit.recover import _FILE

BOOT = "5b0c1e2f-1111-4222-8333-444455556666"


def test_names_are_those_of_the_contract() -> None:
    """Instance, eight digits of the boot, worker, twelve digits of the first id."""
    identity = WriterIdentity.of(f"host.example/{BOOT}/2")
    stem = file_stem(identity.stem, 17)

    assert identity == WriterIdentity("host.example", BOOT, 2)
    assert identity.source == f"host.example/{BOOT}/2"
    assert stem == "host.example-5b0c1e2f-2-000000000017"
    assert published(Path("a"), "2026-11-21", stem) == Path(f"a/dt=2026-11-21/{stem}.ndjson.gz")
    assert hidden(Path("a"), stem, ".ndjson.tmp") == Path(f"a/.{stem}.ndjson.tmp")


@pytest.mark.parametrize(
    ("instance", "name"),
    [("a/b c", "a_b_c"), ("..", "kproxy"), ("_x", "x"), ("größe-1", "gr__e-1"), ("", "kproxy"), ("x" * 300, "x" * 200)],
)
def test_any_instance_has_a_name_that_readers_see(instance: str, name: str) -> None:
    """No folders in it, not too long, and no dot or underscore first, which Spark passes over."""
    assert WriterIdentity(instance, BOOT).stem == f"{name}-5b0c1e2f-0"


def test_hidden_names_lead_back() -> None:
    """To the stem and the session; files of others are not taken for ours."""
    path = hidden(Path("a"), file_stem(WriterIdentity("a-b-1", BOOT, 3).stem, 10**12), ".ndjson.tmp")

    assert session_of(stem_of(path, ".ndjson.tmp")) == "a-b-1-5b0c1e2f-3"
    assert _FILE.fullmatch(path.name)
    assert not _FILE.fullmatch(".notes.ndjson.tmp")
    assert not _FILE.fullmatch(path.name.replace("tmp", "bad"))
