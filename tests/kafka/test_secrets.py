"""Promise 9 on real Kafka: whatever clients log in with or set, nothing that kproxy writes or tells has it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from kproxy.capture.reader import Capture
from kproxy.cli.admin_client import Admin
from kproxy.testing.client import RawClient
from kproxy.testing.kafka import Kafka, Listener
from kproxy.testing.ports import free_port
from kproxy.testing.wait import until

USER, PASSWORD, BROKERS_KEY = "alice", "Tr0ub4dor-and-3", "Xyzzy-17-Plugh"
SALTED = hashlib.sha512(b"another password").digest()
MODULES = "org.apache.kafka.common.security"
SASL = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    "oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
    f'unsecuredLoginStringClaim_sub="{USER}";',
}  # fmt: skip
HANDSHAKE, AUTHENTICATE = 17, 36
PLAIN = f"\0{USER}\0{PASSWORD}".encode()


def part(claims: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


TOKEN = f"{part({'alg': 'none'})}.{part({'sub': USER, 'iat': 1.0, 'exp': 4e9})}."


def log_in(client: RawClient, mechanism: str, data: bytes) -> int:
    """The error code."""
    assert client.call(HANDSHAKE, 1, {"mechanism": mechanism})["error_code"] == 0
    return int(client.call(AUTHENTICATE, 2, {"auth_bytes": data})["error_code"])


def log_in_by_all_means(bootstrap: str) -> None:
    """With frames, with a bare token, with a challenge, with a token of OAuth; and with a wrong password."""
    with RawClient(bootstrap) as client:
        assert log_in(client, "PLAIN", PLAIN) == 0
    with RawClient(bootstrap) as client:
        assert log_in(client, "PLAIN", PLAIN + b"-wrong") != 0
    with RawClient(bootstrap) as client:
        assert client.call(HANDSHAKE, 0, {"mechanism": "PLAIN"})["error_code"] == 0
        client.send(len(PLAIN).to_bytes(4, "big") + PLAIN)
        assert client.frame() == b""
        assert client.brokers()
    with RawClient(bootstrap) as client:
        assert log_in(client, "OAUTHBEARER", f"n,,\1auth=Bearer {TOKEN}\1\1".encode()) == 0
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username=USER, sasl_plain_password=PASSWORD,
    )  # fmt: skip
    with closing(producer):
        assert producer.send("orders", b"v").get(30).offset >= 0


def set_secrets(bootstrap: str) -> list[bytes]:
    """A delegation token, a user's password, a broker's; what the broker gave, too."""
    with RawClient(bootstrap) as client:
        assert log_in(client, "PLAIN", PLAIN) == 0
        made = client.call(38, 3, {"owner_principal_type": None, "owner_principal_name": None, "renewers": [],
                                   "max_lifetime_ms": -1})  # fmt: skip
        assert made["error_code"] == 0
        until(lambda: client.call(41, 3, {"owners": None})["tokens"])
        client.call(39, 2, {"hmac": made["hmac"], "renew_period_ms": 100_000})
        user = {"name": "bob", "mechanism": 2, "iterations": 8192, "salt": b"salt-of-bob", "salted_password": SALTED}
        answer = client.call(51, 0, {"deletions": [], "upsertions": [user]})
        assert [one["error_code"] for one in answer["results"]] == [0]
        config = {"name": "listener.name.sasl.ssl.keystore.password", "config_operation": 0, "value": BROKERS_KEY}
        broker = {"resource_type": 4, "resource_name": "1", "configs": [config]}
        client.call(44, 1, {"resources": [broker], "validate_only": False})
        client.call(40, 2, {"hmac": made["hmac"], "expiry_time_period_ms": -1})
    return [bytes(made["hmac"])]


@contextmanager
def listening(admin: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "KPROXY_ADMIN": f"http://{admin}"}
    tail = subprocess.Popen([sys.executable, "-m", "kproxy", "tail", "-o", "json"], env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    try:
        with tail:
            yield tail
    finally:
        tail.kill()


def said(*words: object) -> bytes:
    ran = subprocess.run(
        [sys.executable, "-m", "kproxy", *map(str, words)], capture_output=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def test_no_secret_is_written_or_told_anywhere(kproxy_process: Callable[..., Any], tmp_path: Path) -> None:
    """Events, a capture with all payload, what tail, show, stats, redact and replay print, the log at debug, metrics
    and connections: none has a secret in clear, in hex or in base64; exchanges that carry some are all there."""
    listeners = [Listener("SASL", "SASL_PLAINTEXT", SASL)]
    properties = {"delegation.token.secret.key": "secret-of-tokens"}
    with Kafka(1, listeners=listeners, properties=properties, scram={USER: PASSWORD}) as kafka:
        proxy = kproxy_process(config={
            "clusters": {"main": {"bootstrap": [kafka.bootstrap("SASL")]}},
            "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main"}],
            "audit": {"dir": str(tmp_path / "audit"), "detail": "requests"}, "captures": str(tmp_path),
            "log": {"level": "debug"},
        })  # fmt: skip
        admin = Admin(f"http://{proxy.admin}")
        admin("POST", "/api/captures", query={"file": "all", "payload": "full"})
        with listening(proxy.admin) as tail:
            until(lambda: proxy.said("tail begins"))
            log_in_by_all_means(proxy.bootstrap)
            gave = set_secrets(proxy.bootstrap)
            told = json.dumps(admin("GET", "/api/connections")).encode() + proxy.get("/metrics")[1].encode()
            admin("DELETE", "/api/captures/all")
            tail.terminate()
            assert tail.stdout is not None
            tailed = tail.stdout.read()
        capture = tmp_path / "all.pcapng"
        replayed = said("replay", capture, "--to", kafka.bootstrap(), "--speed", "max", "-o", "json")
        told += proxy.logs(100_000).encode()
        assert proxy.stop() == 0
    events = b"".join(gzip.decompress(path.read_bytes()) for path in (tmp_path / "audit").rglob("*.gz"))
    redacted = said("redact", "--names", capture, tmp_path / "redacted.pcapng")
    outputs = {
        "events": events, "capture": capture.read_bytes(), "tail": tailed, "told": told, "replay": replayed,
        "show": said("show", capture, "-n", 1000), "show json": said("show", capture, "-n", 1000, "-o", "json"),
        "stats": said("stats", capture), "redact": redacted + (tmp_path / "redacted.pcapng").read_bytes(),
        "events read": said("tail", tmp_path / "audit", "-o", "wide"),
    }  # fmt: skip

    secrets = [PASSWORD.encode(), BROKERS_KEY.encode(), TOKEN.encode(), PLAIN, SALTED, b"salt-of-bob", *gave]
    for name, output in outputs.items():
        assert output, name
        for secret in secrets:
            for form in forms(secret):
                assert form not in output, (name, secret, form)
    for api in (b"SaslAuthenticate", b"CreateDelegationToken", b"AlterUserScram", b"IncrementalAlterConfigs"):
        assert all(api in outputs[name] for name in ("events", "tail", "show", "stats", "events read")), api
    tokens = [seen for seen in Capture(capture) if seen.key == AUTHENTICATE]
    assert len(tokens) >= 5
    assert all(frame is None or frame.withheld for seen in tokens for frame in (seen.request, seen.response))


def forms(secret: bytes) -> Iterator[bytes]:
    """How it might stand somewhere; base64 in each of its three alignments, without the ends that what is around it
    would change."""
    yield secret
    yield secret.hex().encode()
    if secret != PLAIN:  # whose user is no secret
        yield from (secret[at : at + 5].hex(" ").encode() for at in range(len(secret) - 4))
    for shift in range(3):
        yield base64.b64encode(b"\0" * shift + secret)[4:-4]
