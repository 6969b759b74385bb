"""ApiVersions of clients that have not authenticated: answered as the broker would, which hears nothing of it.

Strategy. The request goes the way of any other, through rules and into the FIFO, but its bytes do not leave. What the
broker answers to such a request is known to the driver (`AskVersions`); put behind the request's correlation id it goes
the way of any response: versions are cut, rules have their say, whoever records sees it. So the client cannot tell the
difference, save for what the broker would have said of a cluster id or node id in the request (version 5, KIP-1242),
which the client sends of a cluster that it knows from before: it is answered as one that names none.
"""

from __future__ import annotations

from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_request
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.session.commands import BROKER, CLIENT, AskVersions
from kproxy.session.lanes.frame import Replace, Wait
from kproxy.session.lanes.pair import LanePair

from .software import is_valid

MOST_REQUESTS = 10
"""ApiVersions requests of one client; brokers take one of a version that they have, and clients need two at most."""
WAITS = "versions"


class EarlyVersions:
    """Stand-in for the broker towards one client that has not authenticated. `answers` has the broker's so far,
    without their correlation ids, by the command that asked for them."""

    __slots__ = ("answers", "count", "question", "session")

    def __init__(self, session: LanePair) -> None:
        self.session = session
        self.count = 0
        self.question: AskVersions | None = None
        self.answers: dict[AskVersions, bytes] = {}

    def scan(self, buf: Buffer, pos: int, end: int, now: float) -> int:
        """Scan one whole ApiVersions in the place of the lane's `scan_frames`; return where the bytes end that pass."""
        session, lane = self.session, self.session.requests
        version = int.from_bytes(buf[pos + 6 : pos + 8], "big")
        step = lane.plan[API_VERSIONS << 16 | version]
        answer = b""
        if step.plain.watched:  # others are answered here in any case
            try:
                question = AskVersions(version, is_valid(decode_request(buf[pos + 4 : end]).body))
            except DecodeError as error:
                session.close("decode", str(error), "client")
                return pos
            if question not in self.answers:
                self.question = question
                session.commands.append(question)
                lane.disposition = Wait(WAITS)
                return pos
            answer = self.answers[question]
        stop = lane.scan_frames(buf, pos, end, now)
        if session.phase.ends or (stop < end and not isinstance(lane.disposition, Replace)):
            return stop
        self.count += 1
        if self.count > MOST_REQUESTS:
            session.close(
                "unauthenticated", f"ApiVersions came more than {MOST_REQUESTS} times before authentication", "client"
            )
            return pos
        return self.answer_instead(answer, buf, pos, end, now)

    def answer_instead(self, answer: bytes, buf: Buffer, pos: int, end: int, now: float) -> int:
        """Take the bytes that would go to the broker, and hand its known `answer` to the response lane."""
        session, lane = self.session, self.session.requests
        disposition, sent, then = lane.disposition, bytes(buf[pos:end]), None
        if isinstance(disposition, Replace):
            sent, then = b"".join(disposition.pieces), disposition.then
        lane.disposition = Replace([], end, then=then)
        to_client, to_broker = session.marks.acted[CLIENT], session.marks.acted[BROKER]
        to_client += to_broker  # the rules' changes count as applied when the answer has gone
        to_broker.clear()
        if not sent or then is not None:  # answered by kproxy, dropped by a rule, or the last that comes
            return pos
        if sent[4:8] != buf[pos + 4 : pos + 8] or len(sent) - 4 != int.from_bytes(sent[:4], "big", signed=True):
            session.close("stopped", "a rule has made of ApiVersions what brokers do not answer")
            return pos
        correlation = sent[8:12]
        if session.observer is not None:
            session.observer.acted(int.from_bytes(correlation, "big", signed=True), (), answered=True)
        frame = (len(answer) + 4).to_bytes(4, "big") + correlation + answer
        session.responses.receive_slowly(frame, 0, len(frame), now)
        return pos

    def take_answer(self, answer: bytes, now: float) -> None:
        """Take the broker's answer to the ApiVersions that was asked for last, and go on with the request that waits
        for it."""
        lane = self.session.requests
        if self.question is not None:
            self.answers[self.question], self.question = answer, None
        if lane.blocked == WAITS:
            lane.unblock(now)
        self.session.run_pending(now)
