"""Captures with packets missing, in another order, or twice: of a lawful history they prove nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from struct import unpack_from

import pytest

from kproxy.cli.verify import for_sides
from kproxy.cli.verify_input import by_time, recordings, told
from kproxy.record.filters import Filter
from kproxy.tools.verify import Verdict, Verifier, VerifyTerms
from tests.support.exchange_factory import write_capture
from tests.tools.verify.model import Model

PACKET = 6
"""Type of the blocks of a pcapng file that have a packet each."""
SEEDS = 40 if os.environ.get("KPROXY_TEST_ALL") else 2


def blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of a pcapng file with their types."""
    at = 0
    while at < len(data):
        kind, size = unpack_from("<II", data, at)
        yield kind, data[at : at + size]
        at += size


def verdict(path: Path, terms: VerifyTerms, *others: Path) -> Verdict:
    """Return the verdict of captures, as the command does."""
    found = recordings([str(path), *map(str, others)])
    terms = for_sides(found, terms)
    verifier = Verifier(terms)
    for pair in by_time(found, Filter("")):
        verifier.add(pair)
    terms.incomplete.extend(told(found))
    verifier.strangers = sum(one.strangers or 0 for one in found)
    return verifier.verdict()


@pytest.mark.parametrize("own", [True, False], ids=["kproxy", "tcpdump"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_packets_that_are_missing_prove_nothing(tmp_path: Path, seed: int, own: bool) -> None:
    """Each hundredth or a third of them; and neighbours in the wrong order, or packets that are there twice."""
    random = Random(seed)
    whole = write_capture(tmp_path / "whole.pcapng", [one.front for one in Model(seed).run(8) if one.front is not None])
    data = whole.read_bytes() if own else whole.read_bytes().replace(b"kproxy", b"tshark", 1)
    packets = sum(kind == PACKET for kind, _ in blocks(data))
    assert packets > 100
    for lost, doubled, swapped in ((0.01, 0, 0), (0.3, 0, 0), (0.02, 0.1, 0.2), (0, 0.1, 0.2)):
        kept: list[bytes] = []
        for kind, block in blocks(data):
            if kind != PACKET:
                kept.append(block)
            elif random.random() >= lost:
                kept += [block] * (1 + (random.random() < doubled))
                if random.random() < swapped and len(kept) > 20:
                    kept[-2:] = reversed(kept[-2:])
        torn = tmp_path / "torn.pcapng"
        torn.write_bytes(b"".join(kept))
        for complete in (False, True):
            found = verdict(torn, VerifyTerms(assume_complete=complete, level="note"))
            proved = [one for one in found.findings if one.level == "proved"]
            assert proved == [], (lost, doubled, swapped, complete)
            assert found.exchanges


def test_a_capture_in_two_files_is_one_history(tmp_path: Path) -> None:
    """What a model broke is found in both halves together as it is in the whole."""
    found = 0
    for seed in range(12):
        model = Model(seed, "offset-given-twice")
        seen = [one.front for one in model.run(8) if one.front is not None]
        if not model.spoilt:
            continue
        half = len(seen) // 2
        parts = [write_capture(tmp_path / name, exchanges) for name, exchanges in
                 (("1.pcapng", islice(seen, half)), ("2.pcapng", islice(seen, half, None)))]  # fmt: skip
        whole = write_capture(tmp_path / "whole.pcapng", seen)
        together = Verifier(VerifyTerms(view="clients"))
        for pair in by_time(recordings([str(one) for one in parts]), Filter("")):
            together.add(pair)
        expected = {(one.check, one.about) for one in verdict(whole, VerifyTerms(view="clients")).findings}
        assert {(one.check, one.about) for one in together.verdict().findings} == expected
        found += bool(expected)
        if found == 2:
            break
    assert found == 2


def rotated(folder: Path, seed: int = 3, files: int = 3) -> tuple[Path, list[Path]]:
    """Write a lawful history as one file of tcpdump, and as several rotated ones."""
    seen = [one.front for one in Model(seed).run(8) if one.front is not None]
    data = write_capture(folder / "all.pcapng", seen).read_bytes().replace(b"kproxy", b"tshark", 1)
    head = [block for kind, block in blocks(data) if kind != PACKET][:3]
    packets = [block for kind, block in blocks(data) if kind == PACKET]
    packets.sort(key=lambda block: unpack_from("<II", block, 12))  # tcpdump writes packets in the order of time
    whole, parts = folder / "whole.pcapng", [folder / "parts" / f"trace.pcap{number or ''}" for number in range(files)]
    (folder / "parts").mkdir()
    whole.write_bytes(b"".join(head + packets))
    for number, part in enumerate(parts):
        begin, end = (len(packets) * one // files for one in (number, number + 1))
        part.write_bytes(b"".join(head + packets[begin:end]))
    return whole, parts


def test_recordings_of_a_rotated_tcpdump_keep_connections(tmp_path: Path) -> None:
    """The order of the arguments does not matter, and the files may be in a folder."""
    whole, parts = rotated(tmp_path)
    terms = VerifyTerms(level="note", assume_complete=True)
    expected = verdict(whole, terms)
    assert expected.exchanges > 100
    for found in (verdict(parts[2], terms, parts[0], parts[1]), verdict(parts[0].parent, terms)):
        assert found.incomplete == []
        assert (found.exchanges, found.connections) == (expected.exchanges, expected.connections)
        assert (found.clean, found.not_checked) == (expected.clean, expected.not_checked)


def test_recordings_without_common_connections_stay_apart(tmp_path: Path) -> None:
    """Two clusters may have the same addresses, one after the other."""
    files = []
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        files.append(rotated(tmp_path / str(seed), seed)[0])
    assert len(recordings([str(one) for one in files])) == 2


def test_recordings_of_two_hosts_stay_apart(tmp_path: Path) -> None:
    """Two hosts that record the same connections make the predecessor of a file ambiguous."""
    _, (first, second) = rotated(tmp_path, files=2)
    copy = tmp_path / "other.pcapng"
    copy.write_bytes(first.read_bytes())
    assert len(recordings([str(first), str(second)])) == 1
    assert len(recordings([str(first), str(copy), str(second)])) == 3
