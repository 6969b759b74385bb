"""Bytes to values and back, for every message of Kafka's protocol. No IO, no clock, no trio.

Words: an *api* is a request with its response, under one key; a *message* is a decoded body with its header; a
*frame* is a message's bytes without the 4-byte length; a *layout* is one message in one version, resolved from the
table in `messages/`; a *span* is where a value lies in a frame.
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
