"""Promise 9 on real Kafka: whatever clients log in with or set, nothing that kproxy writes or tells has it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from cryptography.hazmat.primitives import serialization
from kafka import KafkaProducer

from kproxy.admin.api import DESCRIPTION
from kproxy.cli import main
from kproxy.cli.admin_client import Admin
from kproxy.protocol.sasl.scram import make_line, read_users
from kproxy.record.captures.reader import Capture
from kproxy.testing.kafka import Kafka, KafkaListener
from kproxy.testing.process import free_port
from tests.support.certificates import Authority, client_context
from tests.support.raw_client import RawClient
from tests.support.wait import until

pytestmark = pytest.mark.usefixtures("kafka_python")
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
    """Run a command in this process, and return its output."""
    ran = CliRunner().invoke(main, [*map(str, words)])
    assert ran.exit_code == 0, ran.output
    return ran.output.encode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def sasl_kafka(authority: Authority) -> Iterator[Kafka]:
    """A broker whose clients log in; on SHORT over TLS, for two seconds only (KIP-368)."""
    tls = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.issue("127.0.0.1", file="broker.pem"))}
    short = SASL | tls | {"connections.max.reauth.ms": "2000"}
    listeners = [KafkaListener("SASL", "SASL_PLAINTEXT", SASL), KafkaListener("SHORT", "SASL_SSL", short)]
    properties = {"delegation.token.secret.key": "secret-of-tokens"}
    with Kafka(1, listeners=listeners, properties=properties, scram={USER: PASSWORD}) as kafka:
        yield kafka


def test_no_secret_is_written_or_told_anywhere(
    kproxy_process: Callable[..., Any], tmp_path: Path, sasl_kafka: Kafka
) -> None:
    """Events, a capture with all payload, what tail, show, stats, redact and replay print, the log at debug, metrics
    and connections: none has a secret in clear, in hex or in base64; exchanges that carry some are all there."""
    proxy = kproxy_process(config={
        "clusters": {"main": {"bootstrap": [sasl_kafka.bootstrap("SASL")]}},
        "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main"}],
        "audit": {"dir": str(tmp_path / "audit"), "level": "requests"}, "captures": str(tmp_path),
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
    replayed = said("replay", capture, "--to", sasl_kafka.bootstrap(), "--speed", "max", "-o", "json")
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

    hold_no_secret(
        outputs, [PASSWORD.encode(), BROKERS_KEY.encode(), TOKEN.encode(), PLAIN, SALTED, b"salt-of-bob", *gave]
    )
    for api in (b"SaslAuthenticate", b"CreateDelegationToken", b"AlterUserScram", b"IncrementalAlterConfigs"):
        assert all(api in outputs[name] for name in ("events", "tail", "show", "stats", "events read")), api
    tokens = [seen for seen in Capture(capture) if seen.key == AUTHENTICATE]
    assert len(tokens) >= 5
    assert all(frame is None or frame.withheld for seen in tokens for frame in (seen.request, seen.response))


def hold_no_secret(outputs: dict[str, bytes], secrets: list[bytes]) -> None:
    for name, output in outputs.items():
        assert output, name
        for secret in secrets:
            for form in forms(secret):
                assert form not in output, (name, secret, form)


# ---- kproxy's own


OWN_TOKEN = f"{part({'alg': 'none'})}.{part({'sub': USER, 'iat': 1.0, 'exp': 4e9, 'jti': 'Plover-99'})}."
USERS_PASSWORD, WRONG, MISTYPED = "Fee-fie-foe-foo-1", "Wrong-Plugh-22", "Typed-as-a-name-333"
KEY_PASSWORD, ADMIN_TOKEN = "Key-Xyzzy-4444", "Admin-Zork-55555"
SALT = b"salt-of-grue-666"


def encrypted(file: Path, password: str) -> Path:
    """The same PEM file with its key encrypted."""
    pem = file.read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    hidden = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )  # fmt: skip
    locked = file.with_suffix(".locked")
    locked.write_bytes(hidden + pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    return locked


def page(proxy: Any, path: str) -> str:
    asked = urllib.request.Request(f"http://{proxy.admin}{path}", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return str(answer.read().decode())


def use_all_of_them(proxy: Any, authority: Authority, wheres: dict[str, str]) -> None:
    """The right password by PLAIN and SCRAM, a wrong one, one that was typed as a name; then two renewals at the
    broker, by SCRAM and with a token."""
    base = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.file), "message.timeout.ms": "20000"}
    base |= {"bootstrap.servers": wheres["scram"], "log_level": "0"}
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        login = {"sasl.mechanism": mechanism, "sasl.username": "carol", "sasl.password": USERS_PASSWORD}
        producer = Producer(base | login)
        producer.produce("ren-orders", "v")
        assert producer.flush(30) == 0
    tls = client_context(authority.file)
    for name, password in (("carol", WRONG), (MISTYPED, WRONG)):
        with RawClient(wheres["scram"], tls=tls) as client:
            assert log_in(client, "PLAIN", f"\0{name}\0{password}".encode()) == 58
    with RawClient(wheres["scram"], tls=tls) as client, RawClient(wheres["token"]) as other:
        assert log_in(client, "PLAIN", f"\0carol\0{USERS_PASSWORD}".encode()) == 0
        assert client.brokers() and other.brokers()

        def renewed() -> float:
            found = re.search(r"kproxy_broker_sessions_renewed_total ([\d.]+)", page(proxy, "/metrics"))
            return float(found[1]) if found is not None else 0

        until(lambda: renewed() >= 3)
        assert client.brokers() and other.brokers()


@pytest.mark.deep
def test_none_of_kproxys_own_is_told(
    kproxy_process: Callable[..., Any], tmp_path: Path, sasl_kafka: Kafka, authority: Authority
) -> None:
    """What kproxy logs in with, what its users log in with, the password of its key and the admin token: none is in
    events, captures of both sides, the log at debug, tail, admin pages, the list of processes or its files."""
    files = {"password": PASSWORD, "token": OWN_TOKEN, "key": KEY_PASSWORD, "admin": ADMIN_TOKEN}
    for name, secret in files.items():
        (tmp_path / name).write_text(secret)
    users = make_line("carol", "SCRAM-SHA-256", USERS_PASSWORD, SALT, 4096)
    (tmp_path / "users").write_text(users)
    locked = encrypted(authority.issue("127.0.0.1", "localhost", file="locked.pem"), KEY_PASSWORD)
    there = {"bootstrap": [sasl_kafka.bootstrap("SHORT")], "tls": {"ca": str(authority.file)}}
    scram = {"mechanism": "SCRAM-SHA-256", "username": USER, "password": f"file:{tmp_path / 'password'}"}
    token = {"mechanism": "OAUTHBEARER", "token_file": str(tmp_path / "token")}
    wheres = {name: f"127.0.0.1:{free_port()}" for name in ("scram", "token")}
    asks = {"users": str(tmp_path / "users"), "mechanisms": ["PLAIN", "SCRAM-SHA-256"]}
    tls = {"cert": str(locked), "key_password": f"file:{tmp_path / 'key'}"}
    admin_port, out = free_port(), tmp_path / "out"
    out.mkdir()
    rule = {"name": "r", "kind": "rename_topic", "topics": {"ren-*": "prod.ren-*"}}
    proxy = kproxy_process(config={
        "clusters": {"scram": {**there, "sasl": scram}, "token": {**there, "sasl": token}},
        "listeners": [
            {"name": "scram", "bind": wheres["scram"], "cluster": "scram", "tls": tls, "sasl": asks},
            {"name": "token", "bind": wheres["token"], "cluster": "token"},
        ],
        "audit": {"dir": str(out / "audit"), "level": "requests"}, "captures": str(out), "workers": 2,
        "admin": {"bind": f"127.0.0.1:{admin_port}", "token": f"file:{tmp_path / 'admin'}"},
        "log": {"level": "debug"}, "state": str(out / "state.json"),
    }, rules=[rule], brokers_answer=False)  # fmt: skip
    proxy.admin = f"127.0.0.1:{admin_port}"
    until(proxy.is_ready)
    admin = Admin(f"http://{proxy.admin}", ADMIN_TOKEN)
    admin("POST", "/api/captures", query={"file": "all", "payload": "full"})
    use_all_of_them(proxy, authority, wheres)
    pages = [json.dumps(admin("GET", f"/api/{page}")) for page in ("connections", "rules", "captures")]
    pages += [page(proxy, path) for path in ("/metrics", "/readyz", DESCRIPTION)]
    admin("DELETE", "/api/captures/all")
    processes = b"".join(file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if is_ours(file, proxy.pid))
    log = proxy.logs(100_000).encode()
    assert proxy.stop() == 0

    outputs = {"log": log, "pages": "".join(pages).encode(), "processes": processes}
    for file in out.rglob("*"):
        if file.is_file():
            outputs[file.name] = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    outputs["show"] = said("show", out / "all.pcapng", "-n", 1000)
    kept = read_users(users).find("carol", "SCRAM-SHA-256")
    assert kept is not None
    secrets = [USERS_PASSWORD, WRONG, MISTYPED, OWN_TOKEN, KEY_PASSWORD, ADMIN_TOKEN, PASSWORD]
    hold_no_secret(outputs, [*map(str.encode, secrets), kept.stored, kept.server, kept.salt])
    assert len(outputs) >= 6
    assert b"SaslAuthenticate" in outputs["show"]
    seen = [one for one in Capture(out / "all.pcapng") if one.key == AUTHENTICATE]
    assert len(seen) >= 5
    assert all(frame is None or frame.withheld for one in seen for frame in (one.request, one.response))


def is_ours(file: Path, pid: int) -> bool:
    """Whether a process is that one, or its child."""
    try:
        status = (file.parent / "status").read_text()
    except OSError:
        return False
    parent = re.search(r"PPid:\s+(\d+)", status)
    return str(pid) in (file.parent.name, parent[1] if parent is not None else "")


def forms(secret: bytes) -> Iterator[bytes]:
    """How it might stand somewhere; base64 in each of its three alignments, without the ends that what is around it
    would change."""
    yield secret
    yield secret.hex().encode()
    if secret != PLAIN:  # whose user is no secret
        yield from (secret[at : at + 5].hex(" ").encode() for at in range(len(secret) - 4))
    for shift in range(3):
        yield base64.b64encode(b"\0" * shift + secret)[4:-4]
