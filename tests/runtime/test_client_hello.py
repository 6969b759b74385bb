"""The name in a ClientHello, from real ones and from any bytes."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.runtime.listeners.sni_port import LONGEST, MOST_RECORDS, BadHello, ClientHello, parse


def hello(name: str | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """What OpenSSL sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version
    to_client, from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(to_client, from_client, server_hostname=name).do_handshake()
    return from_client.read()


REAL = hello("b1.kafka.example.com")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", ["b1.kafka.example.com", "B1.Example.Com", None])
def test_the_name_is_found(name: str | None, version: ssl.TLSVersion) -> None:
    """As it was written; a byte less is not whole yet, wherever it is cut; what comes behind does not matter."""
    data = hello(name, version)

    assert parse(data) == parse(data + b"\x14\x03\x03\x00\x01\x01") == ClientHello(name)
    for cut in range(len(data)):
        assert parse(data[:cut]) is None


@given(st.lists(st.integers(1, 600), max_size=10))
def test_it_may_come_in_several_records(sizes: list[int]) -> None:
    """Cut anywhere."""
    message, records = REAL[5:], b""
    for size in [*sizes, len(REAL)]:
        part, message = message[:size], message[size:]
        records += b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part if part else b""

    assert parse(records) == ClientHello("b1.kafka.example.com")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1", "TLS begins with a record of type 71, expected handshake (22)"),
        (b"\x16\x03\x01\x00\x00", "a TLS record of 0 bytes, expected 1 to 16384"),
        (b"\x16\x03\x01\xff\xff", "a TLS record of 65535 bytes, expected 1 to 16384"),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", "TLS begins with the handshake message 2, expected ClientHello (1)"),
        (b"\x16\x03\x01\x00\x04\x01\x01\x00\x00", "a ClientHello of 65540 bytes, expected at most 16384"),
        (b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03", "a ClientHello ends at byte 2, expected 35 or more"),
        (
            REAL.replace(b"b1.kafka", b"\xe41.kafka"),
            "a ClientHello with the server name b'\\xe41.kafka.exa",
        ),
    ],
)
def test_what_is_no_hello_is_told_apart(data: bytes, why: str) -> None:
    """In the words of a log line."""
    with pytest.raises(BadHello) as caught:
        parse(data)

    assert str(caught.value).startswith(why)


@given(st.binary(max_size=300), st.integers(0, len(REAL) - 1), st.integers(0, 300))
def test_any_bytes_are_a_hello_or_not_whole_or_wrong(noise: bytes, at: int, gone: int) -> None:
    """No other error, and never a wait for more than the limit."""
    for data in (noise, b"\x16\x03\x01" + noise, REAL[:at] + noise + REAL[at + gone :]):
        try:
            found = parse(data)
        except BadHello:
            continue
        assert found is not None or len(data) < LONGEST


def test_a_hello_without_end_is_given_up() -> None:
    """As many bytes as may be, and the rest announced."""
    part = b"\x16\x03\x01\x10\x00" + b"\x01\x00\x3f\xfc" + bytes(4092)
    with pytest.raises(BadHello, match=f"a ClientHello is not whole after {LONGEST} bytes"):
        parse((part + (b"\x16\x03\x01\x02\x00" + bytes(512)) * 50)[:LONGEST])


@pytest.mark.parametrize("size", [1, 10, 200])
def test_a_hello_in_crumbs_costs_what_it_sends(size: int) -> None:
    """All records are gone through each time a byte comes: 16 kB of one-byte records took 18 s of CPU."""
    message = b"\x01\x00\x3f\x00" + bytes(LONGEST)
    parts = [message[at : at + size] for at in range(0, LONGEST, size)]
    records = [b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in parts]

    assert parse(b"".join(records[:MOST_RECORDS])) is None
    with pytest.raises(BadHello, match=f"a ClientHello is not whole after {MOST_RECORDS} TLS records"):
        parse(b"".join(records[: MOST_RECORDS + 1]))
