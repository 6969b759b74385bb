"""Links."""

from __future__ import annotations

from kproxy.tools.rehearse.dialogue import request, response
from kproxy.tools.replay.target import CloseLink, OpenLink, PlayerCommand, ReplayLinks, SendRequest


def test_what_is_sent_before_a_link_is_open_waits(tools: object) -> None:
    """In its order, and numbered when it goes."""
    commands: list[PlayerCommand] = []
    links, told = ReplayLinks(commands), list[bytes | None]()
    link = links.to(1, ("b", 1))
    frame = request(3, 9, 500)[4:]
    for _ in range(2):
        links.send(link, frame, lambda answer, now: told.append(answer))
    waiting = list(commands)
    links.established(link.number)

    assert waiting == [OpenLink(1, ("b", 1))]
    assert [type(one) for one in commands[1:]] == [SendRequest, SendRequest]
    assert list(link.pending) == [1, 2]


def test_answers_find_their_requests_in_any_order() -> None:
    """One that nobody waits for is passed over."""
    links, told = ReplayLinks([]), list[tuple[int, float]]()
    link = links.to(1, ("b", 1))
    links.established(link.number)
    for number in (1, 2):
        links.send(link, request(3, 9, 0)[4:], lambda answer, now, number=number: told.append((number, now)))
    for number, now in ((2, 5.0), (9, 6.0), (1, 7.0)):
        assert links.received(link.number, response(3, 9, number)[4:], now) == ""

    assert told == [(2, 5.0), (1, 7.0)]


def test_all_that_waits_is_told_when_a_link_ends() -> None:
    """What was sent, and what was not yet; an address that refused is remembered."""
    links, told = ReplayLinks([]), list[bytes | None]()
    link = links.to(1, ("b", 1))
    links.send(link, request(3, 9, 0)[4:], lambda answer, now: told.append(answer))
    links.lost(link.number, 1.0, "refused")
    links.lost(link.number, 2.0)

    assert told == [None]
    assert links.unreachable == {("b", 1): "refused"}
    assert links.to(1, ("b", 1)).number == 2


def test_a_line_that_is_over_closes_all_its_links() -> None:
    """To whatever brokers; those of others stay."""
    commands: list[PlayerCommand] = []
    links = ReplayLinks(commands)
    for line, port in ((1, 1), (1, 2), (2, 1)):
        links.to(line, ("b", port))
    links.close_line(1)

    assert commands[-2:] == [CloseLink(1), CloseLink(2)]
    assert list(links.by_number) == [3]
