"""`kproxy verify --follow`: findings while a proxy is followed, and the verdict at Ctrl-C or at its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.base.errors import InternalError
from kproxy.cli import main, verify
from kproxy.cli.admin_client import Admin
from kproxy.cli.start import Interruption
from kproxy.cli.verify import follow
from kproxy.record.audit.request_event import request_event
from kproxy.record.exchange import ObservedExchange
from kproxy.record.filters import Filter
from kproxy.testing.process import Proxy
from kproxy.tools.verify import Finding, Verdict, VerifyTerms
from tests.cli.test_verify import right, told_names, twice
from tests.support.exchange_factory import NOON
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import RawClient
from tests.support.wait import until

pytestmark = pytest.mark.process
ENDED = "the proxy at http://there has ended"
LISTENING = {"listening": ""}
Line = Mapping[str, Any]


def lines(exchanges: Iterable[ObservedExchange]) -> list[Line]:
    return [LISTENING, *({"request": request_event(seen, float)} for seen in exchanges)]


class ToldAdmin(Admin):
    """Admin API of a proxy that tells these lines, and ends then."""

    def __init__(self, told: Iterable[Line]) -> None:
        super().__init__("http://there")
        self.told = told

    def stream(self, path: str, query: Mapping[str, Any]) -> Generator[bytes, None, None]:
        assert path == "/api/tail"
        for line in self.told:
            yield json.dumps(line).encode()
        raise InternalError(ENDED)


def followed(told: Iterable[Line], wanted: str = "", **terms: Any) -> tuple[Verdict, list[Finding]]:
    """Return the verdict of what a proxy tells, and what was found before."""
    early: list[Finding] = []
    return follow(ToldAdmin(told), Filter(wanted), VerifyTerms(**terms), early.append), early


def test_what_passes_is_judged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As soon as nothing earlier is to be expected, a finding once and again when it is surer; all of it at the end."""
    monkeypatch.setattr(verify, "LOOK", 0.0)
    monkeypatch.setattr(verify, "SHARE", 0)
    later = [told_names(at=NOON + 120 + second) for second in range(5)]
    verdict, early = followed([*lines([*twice(), *later]), *lines(twice(NOON + 200))])
    assert [(one.check, one.level) for one in early] == [("offset-given-twice", "suspect")]
    # The last writes are equal to the first ones, and acknowledged at the same offset.
    assert [one.times for one in verdict.findings if one.check == "offset-given-twice"] == [3]
    assert capsys.readouterr().err == f"following the proxy at http://there, Ctrl-C ends it\nkproxy: {ENDED}\n"


def test_what_was_left_out_is_told() -> None:
    """A reader that is too slow, exchanges that a filter cannot judge or that do not fit: nothing is clean then."""
    verdict, _ = followed([*lines(right()), {"dropped": 7}, {"unknown": 2, "why": "so"}, {"dropped": 5}], "~k produce")
    assert verdict.incomplete == [
        "12 exchanges left out: they came faster than they were read",
        "2 exchanges could not be judged by the filter",
        "only exchanges that fit api == Produce were looked at",
    ]
    assert verdict.clean == []


@pytest.mark.parametrize("told", [[], [{"request": {"api": 5}}], [{"request": {"topics": [{"partitions": 3}]}}]])
def test_what_is_no_proxy(told: list[Line]) -> None:
    """Is an error, and no verdict."""
    with pytest.raises(InternalError, match=r"has ended|not an event"):
        followed(told)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x.pcapng"], "--follow: expected no files"),
        (["--view", "brokers"], "expected --view clients, since the stream lacks"),
        (["--records"], "expected no --records, since the stream lacks"),
        (["--assume-complete"], "expected no --assume-complete, since the stream lacks"),
        (["--admin", "http://127.0.0.1:9"], "nothing answers at http://127.0.0.1:9"),
    ],
)
def test_what_cannot_be_followed(words: list[str], message: str) -> None:
    """Exit code 2, and why."""
    ran = CliRunner().invoke(main, ["verify", "--follow", *words])
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert message in ran.stderr


def test_ctrl_c_ends_a_reading() -> None:
    """While the next item is waited for, at once; while one is worked on, behind it. Then it means what it meant."""
    before = signal.getsignal(signal.SIGINT)

    def source() -> Iterator[int]:
        for number in count():
            if number == 3:
                os.kill(os.getpid(), signal.SIGINT)
            yield number

    waited, worked = Interruption(), Interruption()
    assert list(waited.items(source())) == [0, 1, 2]
    done = []
    for number in worked.items(range(100)):
        if number == 2:
            os.kill(os.getpid(), signal.SIGINT)
        done.append(number)
    assert done == [0, 1, 2]
    assert waited.asked and worked.asked
    assert signal.getsignal(signal.SIGINT) is before


@contextmanager
def telling(told: Iterable[Line]) -> Iterator[str]:
    """Serve these lines as a proxy's tail, and then one about something later again and again; give the address."""
    ended = threading.Event()

    class Teller(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            for line in told:
                self.wfile.write(json.dumps(line).encode() + b"\n")
            try:
                while not ended.wait(0.1):
                    self.wfile.write(json.dumps(lines([told_names(at=NOON + 120)])[1]).encode() + b"\n")
            except OSError:
                pass  # who listened has gone

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Teller) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            ended.set()
            server.shutdown()
            thread.join()


@contextmanager
def verifying(address: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run `kproxy verify --follow` on a proxy."""
    command = [sys.executable, "-m", "kproxy", "verify", "--follow", "--admin", address, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_ctrl_c_gives_the_verdict_and_its_exit_code() -> None:
    """Exit code 1 where something was found, whose lines were there before."""
    with telling(lines(twice())) as address, verifying(address, "--fail-on", "suspect") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) == 1
    assert first == "SUSPECT  offset-given-twice · orders[0]\n"
    assert f"the proxy at {address}: " in rest
    assert "1 finding (1 suspect); clean: " in rest


def test_a_proxy_that_has_nothing_to_hide() -> None:
    """Exit code 0 at its end, with what was read up to then."""
    with (
        FakeBroker() as broker,
        Proxy(broker.address) as proxy,
        verifying(f"http://{proxy.admin}", "-o", "json") as process,
    ):
        until(lambda: proxy.said("tail begins"))
        with RawClient(proxy.bootstrap) as client:
            client.brokers()
        assert proxy.stop() == 0
        out, said = process.communicate(timeout=60)
    made = json.loads(out)
    assert (process.returncode, made["findings"], made["views"]) == (0, [], ["clients"])
    assert f"kproxy: the proxy at http://{proxy.admin} has ended\n" in said
