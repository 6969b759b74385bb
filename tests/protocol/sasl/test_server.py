"""The server's end of PLAIN and SCRAM, against the client's end and against those who are not who they say."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count

import pytest

from kproxy.protocol.sasl import scram
from kproxy.protocol.sasl.mechanisms import BAD_PLAIN, Accepted, Checker, Denied, LoginWork, ScramClient, plain
from kproxy.protocol.sasl.scram import Users, make_line, read_users

SALT, PASSWORD = b"0123456789abcdef", "pen,c=il\u00e7"
NAME = "al,i=ce"
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def users() -> Users:
    return read_users("\n".join(make_line(NAME, one, PASSWORD, SALT, 4096) for one in MECHANISMS))


@pytest.fixture
def checker(users: Users) -> Checker:
    numbers = count()
    return Checker(lambda: users, b"key", lambda: f"server{next(numbers)}")


def client(mechanism: str, name: str = NAME, password: str = PASSWORD) -> ScramClient:
    return ScramClient(mechanism, name, password, lambda: "client")


def show(checker: Checker, token: bytes) -> Accepted:
    """What becomes of a token of PLAIN. Raises Denied."""
    exchange = checker.begin("PLAIN")
    try:
        said = exchange.send(token)
        assert isinstance(said, LoginWork)
        exchange.send(said.work())
    except StopIteration as end:
        accepted: Accepted = end.value
        return accepted
    raise AssertionError("an exchange of PLAIN has one token")


def dialogue(checker: Checker, mechanism: str, one: ScramClient) -> Accepted:
    """How it ends, where the client is content, too."""
    tokens, exchange = one.tokens(), checker.begin(mechanism)
    final = tokens.send(exchange.send(next(tokens)))
    with pytest.raises(StopIteration) as end:
        exchange.send(final)
    accepted: Accepted = end.value.value
    with pytest.raises(StopIteration):
        tokens.send(accepted.answer)
    return accepted


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scram(checker: Checker, mechanism: str) -> None:
    """The right password is accepted, and the client finds the server's signature right."""
    assert dialogue(checker, mechanism, client(mechanism)).name == NAME


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scram_with_a_wrong_password(checker: Checker, mechanism: str) -> None:
    """Refused after the last token, in Kafka's words; the log names the user, and no secret."""
    with pytest.raises(Denied) as denied:
        dialogue(checker, mechanism, client(mechanism, password="wrong"))
    assert str(denied.value).endswith(f"due to invalid credentials with SASL mechanism {mechanism}")
    assert denied.value.why == f'wrong password of user "{NAME}"'


def test_scram_of_a_user_who_is_not_there(users: Users) -> None:
    """The challenge looks like any other, and is the same in every process; the refusal has the same words."""
    challenges = []
    for key in (b"one", b"two"):
        checker = Checker(lambda: users, key, lambda: "server")
        tokens, exchange = client(MECHANISMS[0], "nobody").tokens(), checker.begin(MECHANISMS[0])
        challenges.append(exchange.send(next(tokens)))
        with pytest.raises(Denied) as denied:
            exchange.send(tokens.send(challenges[-1]))
        assert denied.value.why == "an unknown user"
        assert "invalid credentials" in str(denied.value)
    assert challenges[0] == challenges[1]
    assert scram.read_challenge(challenges[0], "client").iterations == 4096


@pytest.mark.parametrize(
    ("first", "final", "why"),
    [
        (b"n,,n=u,r=client", b"c=biws,r=other,p=AAAA", "does not belong to the first"),
        (b"n,,n=u,r=client", b"c=eSws,r=clientserver0,p=AAAA", "does not belong to the first"),
        (b"n,,n=u,r=client", b"", "expected SCRAM in the second token"),
        (b"\xff", None, "a token of SCRAM is not UTF-8"),
        (b"", None, "expected SCRAM in the first token"),
        (b"p=tls-unique,,n=u,r=x", None, "channel binding is not supported"),
        (b"n,,n=u,r=x,tokenauth=true", None, "a delegation token, which kproxy cannot check"),
    ],
)
def test_tokens_that_are_none(checker: Checker, first: bytes, final: bytes | None, why: str) -> None:
    """Whatever a client sends, it is a refusal."""
    exchange = checker.begin("SCRAM-SHA-256")
    if final is not None:
        exchange.send(first)
    with pytest.raises(Denied) as denied:
        exchange.send(first if final is None else final)
    assert why in denied.value.why


def test_nobody_acts_as_another_one(checker: Checker) -> None:
    """An authorization id may only be the user's own name (RFC 4616, RFC 5802), as with Kafka."""
    escaped = scram.escaped(NAME)
    for authorization, right in ((escaped, True), ("root", False)):
        exchange = checker.begin("SCRAM-SHA-256")
        bare, head = f"n={escaped},r=client", f"n,a={authorization},"
        challenge = exchange.send((head + bare).encode())
        nonce = scram.read_challenge(challenge, "client").nonce
        final = f"c={scram.encoded(head.encode())},r={nonce}"
        message = f"{bare},{challenge.decode()},{final}"
        shown = scram.encoded(scram.proof("sha256", scram.keys("sha256", PASSWORD, SALT, 4096), message))
        with pytest.raises(StopIteration if right else Denied):
            exchange.send(f"{final},p={shown}".encode())
    for authorization, right in ((NAME, True), ("root", False)):
        with nullcontext() if right else pytest.raises(Denied):
            show(checker, f"{authorization}\0{NAME}\0{PASSWORD}".encode())


def test_plain(checker: Checker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked against what is kept for SCRAM; one that was right is not hashed again, any other is."""
    hashed = []
    real = scram.keys
    monkeypatch.setattr(scram, "keys", lambda *given: (hashed.append(given[0]), real(*given))[1])
    token = next(plain(NAME, PASSWORD))
    for _ in range(3):
        assert show(checker, token) == Accepted(NAME, b"")
    assert len(hashed) == 1
    for wrong in (plain(NAME, "wrong"), plain(NAME, ""), plain("nobody", PASSWORD), plain("", PASSWORD)):
        with pytest.raises(Denied, match=BAD_PLAIN) as denied:
            show(checker, next(wrong))
        assert "nobody" not in denied.value.why
    assert len(hashed) == 5
    for none in (b"", b"\0", b"\0\xff\0x", b"a\0b\0c\0d"):
        with pytest.raises(Denied, match=BAD_PLAIN):
            show(checker, none)


def test_a_password_that_was_changed_is_not_known_any_more(users: Users) -> None:
    """What was recognized belonged to the line as it was."""
    now = [users]
    checker = Checker(lambda: now[0], b"key", lambda: "server")
    token = next(plain(NAME, PASSWORD))
    assert show(checker, token).name == NAME
    now[0] = read_users(make_line(NAME, "SCRAM-SHA-256", "another", SALT, 4096))
    with pytest.raises(Denied):
        show(checker, token)
    now[0] = read_users("")
    with pytest.raises(Denied):
        show(checker, token)
