"""One request to one broker over a separate connection, for tests without a client library."""

from __future__ import annotations

import socket
from typing import Any

from kproxy.protocol import Message, apis, decode_response, encode
from kproxy.protocol.table.api_keys import METADATA

_APIS = {api.key: api for api in apis()}


def ask(address: str, key: int, version: int, body: dict[str, Any], *, timeout: float = 5) -> dict[str, Any]:
    """Return the body of the response of the broker at `host:port`.

    Raises OSError when it cannot be reached or does not answer within `timeout` seconds, DecodeError for a bad answer.
    """
    header = {
        "request_api_key": key,
        "request_api_version": version,
        "correlation_id": 1,
        "client_id": "kproxy-testing",
    }
    frame = encode(Message(_APIS[key], version, header, body))
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout) as stream:
        stream.sendall(len(frame).to_bytes(4, "big") + frame)
        with stream.makefile("rb") as answers:
            size = int.from_bytes(_exactly(answers.read(4), 4), "big")
            answer = _exactly(answers.read(size), size)
    return decode_response(answer, key, version).body


def brokers(address: str) -> dict[int, str]:
    """Return the brokers in the response of the broker at this address: {node id: "host:port"}. Raises as ask does."""
    body = ask(address, METADATA, 4, {"topics": [], "allow_auto_topic_creation": False}, timeout=1)
    return {broker["node_id"]: f"{broker['host']}:{broker['port']}" for broker in body["brokers"]}


def topics(address: str, names: list[str] | None = None) -> dict[str, int]:
    """Return the topics, or those named, with their numbers of partitions in the response of the broker at this
    address."""
    wanted = None if names is None else [{"name": name} for name in names]
    body = ask(address, METADATA, 4, {"topics": wanted, "allow_auto_topic_creation": False})
    return {topic["name"]: len(topic["partitions"]) for topic in body["topics"] if topic["error_code"] == 0}


def _exactly(data: bytes, size: int) -> bytes:
    """Return `data` if it has `size` bytes. Raises ConnectionError for an answer that ended before."""
    if len(data) != size:
        raise ConnectionError(f"the answer ends after {len(data)} bytes, expected {size}")
    return data
