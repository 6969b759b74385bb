"""Kafka's protocol: bytes to values and back, without IO, clock or trio. Imports `base` only.

table/      APIs, fields, versions and errors from `messages/*.yaml`; layouts of one version
framing.py  frames of a stream, and their heads
codec/      decode, encode; records/: batches and records; scan/: walks and sketches without decoding
edit.py     edits of a frame; elements.py: topics and partitions of a message
sasl/       mechanisms; otlp.py: pushed metrics

An *API* is a request with its response under one key; a *message* is a decoded header and body; a *frame* is a
message's bytes without the 4-byte size; a *layout* is a message in one version; a *span* is the position of a value in
a frame.
"""

from kproxy.base.errors import DecodeError, EncodeError
from kproxy.protocol.codec.message import Message, decode_request, decode_response, encode
from kproxy.protocol.table.layout import grammar
from kproxy.protocol.table.schema import Api, apis

__all__ = [
    "Api",
    "DecodeError",
    "EncodeError",
    "Message",
    "apis",
    "decode_request",
    "decode_response",
    "encode",
    "grammar",
]
