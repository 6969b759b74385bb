"""How much of frames is kept."""

from __future__ import annotations

from kproxy.capture.policy import LONGEST_HEADER, Policy
from kproxy.observe.credentials import take_out
from kproxy.observe.exchange import Depth, Form, Frame, ObservedExchange
from tests.support.capture_files import client, metadata, produce, request


def kept(payload: str, seen: ObservedExchange, head: int = 20) -> tuple[bytes, bytes]:
    policy = Policy(payload, head)
    assert seen.request and seen.response
    return policy.kept(seen, seen.request, response=False), policy.kept(seen, seen.response, response=True)


def test_each_policy_keeps_a_beginning() -> None:
    """Headers only, so many bytes, or all."""
    seen = metadata()
    assert seen.request and seen.response

    assert (seen.request.data, seen.response.data) == kept("full", seen)
    assert (seen.request.data[:20], seen.response.data[:20]) == kept("head", seen)
    assert (seen.request.data[:14], seen.response.data[:4]) == kept("none", seen)
    assert (Depth.COUNT, Depth.FULL, Depth.FULL) == tuple(Policy(payload).depth for payload in ("none", "head", "full"))


def test_what_is_withheld_stays_so() -> None:
    """Should a frame about credentials have a body by mistake, it is cut off here."""
    data = request("SaslAuthenticate", 2, 5, {"auth_bytes": b"secret"})
    seen = ObservedExchange(
        client(), 1, 36, 2, 5, "shop", Frame(len(data) + 4, 1.0, 1.0, data, Form.WHOLE, "SASL token")
    )
    assert seen.request

    found = Policy("full").kept(seen, seen.request, response=False)

    assert data[: 8 + 2 + 4 + 1] == found and b"secret" not in found


def test_frames_end_before_values_that_were_taken_out() -> None:
    """Which config was changed is kept, its value is not, nor what stood in for it."""
    secret = {"name": "ssl.keystore.password", "value": "secret"}
    broker = {"resource_type": 4, "resource_name": "1", "configs": [secret]}
    data, withheld = take_out(request("AlterConfigs", 1, 5, {"resources": [broker]}), 33, 1, "request")
    seen = ObservedExchange(client(), 1, 33, 1, 5, "shop", Frame(len(data) + 4, 1.0, 1.0, data, Form.WHOLE, withheld))
    assert seen.request

    found = Policy("full").kept(seen, seen.request, response=False)

    assert found.endswith(b"ssl.keystore.password\0\6") and data.startswith(found)
    assert found[:20] == Policy("head", 20).kept(seen, seen.request, response=False)


def test_headers_are_made_where_nothing_was_kept() -> None:
    """From what is known; sketches are cut at their header, since their bytes are not the frame's."""
    seen = produce(acks=0)
    assert seen.request
    header = seen.request.data[:14]
    for form, data in ((Form.NONE, b""), (Form.SKETCH, seen.request.data)):
        seen.request = Frame(4000, 1.0, 1.0, data, form)
        assert header == Policy("full").kept(seen, seen.request, response=False)
    seen.request = Frame(40_000, 1.0, 1.0, b"", Form.NONE)
    seen.client_id = "x" * 32_000
    assert LONGEST_HEADER == len(Policy("none").kept(seen, seen.request, response=False))
    unknown = ObservedExchange(client(), 1, 999, 3, 5, None, Frame(50, 1.0, 1.0, b"\3\xe7\0\3\0\0\0\5more", Form.HEAD))
    assert unknown.request
    assert b"\3\xe7\0\3\0\0\0\5" == Policy("none").kept(unknown, unknown.request, response=False)
