"""The mark on kproxy's questions to itself: only a broker that was asked knows it, of its own cluster."""

from __future__ import annotations

from kproxy.session.shared import AT, PREFIX, LoopToken


def frame(client_id: bytes) -> bytes:
    """An ApiVersions request without its size."""
    return bytes([0, 18]) + bytes(6) + len(client_id).to_bytes(2, "big") + client_id


def test_a_question_that_comes_back_is_known_by_all_workers() -> None:
    mark = LoopToken()
    question = mark.question("east-1")[4:]

    assert mark.cluster_of(question) == "east-1"
    assert LoopToken(mark.instance).cluster_of(question) == "east-1"
    assert LoopToken().cluster_of(question) == ""


def test_who_was_asked_of_one_cluster_cannot_have_another_refused() -> None:
    """Its broker has the client id of its own question, and sends it as a client with another cluster's name in it."""
    mark = LoopToken()
    known = mark.question("mine")[4 + AT :]
    replayed = known.replace(b"mine", b"others")

    assert replayed != known
    assert mark.cluster_of(frame(known)) == "mine"
    assert mark.cluster_of(frame(replayed)) == ""


def test_what_begins_like_a_mark_is_none() -> None:
    """Cut off anywhere, longer than it is, or with bytes that are no text."""
    mark = LoopToken()
    known = mark.question("mine")[4:]

    assert [mark.cluster_of(known[:end]) for end in range(AT, len(known))] == [""] * (len(known) - AT)
    for name in (PREFIX, PREFIX + b"-", PREFIX + b"\xff" * 100, PREFIX + b"x" * 17 + b"mine"):
        assert mark.cluster_of(frame(name)) == ""
