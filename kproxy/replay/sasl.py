"""Authentication of the replay's own: recorded credentials are withheld, so it needs some.

    steps = plain("user", "password")
    frame = next(steps)                 # send it with its length, then hand in the response, until it stops
    frame = steps.send(answer)

SASL/PLAIN in Kafka's frames (KIP-152): SaslHandshake 1, then SaslAuthenticate 1.
"""

from __future__ import annotations

from collections.abc import Generator

from kproxy.errors import InputError
from kproxy.wire import Message, decode_response, encode
from kproxy.wire.table.api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE

from .own_requests import own

VERSION = 1


class CredentialsRefused(InputError):
    """Error for credentials that the target does not take."""


def plain(user: str, password: str) -> Generator[bytes, bytes, None]:
    """Yield frames without their lengths, and take the responses.

    Raises CredentialsRefused, and DecodeError for responses that cannot be read.
    """
    answer = yield encode(own(SASL_HANDSHAKE, VERSION, {"mechanism": "PLAIN"}))
    shook = read(answer, SASL_HANDSHAKE)
    if shook.body["error_code"]:
        offered = ", ".join(one for one in shook.body["mechanisms"] or () if one)
        raise CredentialsRefused(f"the target offers {offered or 'no mechanism'}, not PLAIN")
    token = b"\0" + user.encode() + b"\0" + password.encode()
    answer = yield encode(own(SASL_AUTHENTICATE, VERSION, {"auth_bytes": token}))
    authenticated = read(answer, SASL_AUTHENTICATE)
    if authenticated.body["error_code"]:
        raise CredentialsRefused(
            f"the target refuses user {user}: {authenticated.body['error_message'] or authenticated.body['error_code']}"
        )


def read(frame: bytes, key: int) -> Message:
    return decode_response(frame, key, VERSION)
