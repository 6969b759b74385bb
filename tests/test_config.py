"""The config document: what it may hold, and every mistake in it at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.app.config.document import Config, config_from
from kproxy.rules.document.check import ListenerTraits
from kproxy.rules.kinds.advertise import Advertise
from kproxy.rules.values.address import Address
from kproxy.rules.values.source import Source
from kproxy.runtime.config.network import ListenerConfig, ProxyProtocol

RIGHT = """
clusters:
  main:
    bootstrap: [b1:9092, "[::1]:9092"]
    tls: {}
    dial: {"b1.internal:9092": "10.0.0.5:19092"}
listeners:
  - {name: outside, bind: "0.0.0.0:9092", cluster: main}
  - {name: plain, bind: "127.0.0.1:0", cluster: main, advertise: false}
  - {name: named, bind: "127.0.0.1:0", cluster: main, advertise: {host: h, ports: 9193-9292}}
limits: {max_frame_bytes: 1MiB, idle_timeout: 5m, unknown_apis: pass}
admin: {bind: "127.0.0.1:9190"}
rules: [rules/, "/abs/x.yaml"]
state: state.json
log: {format: json, level: debug}
"""
BASE = "clusters: {main: {bootstrap: [b1:9092]}}\nlisteners: [{name: main, bind: 'h:1', cluster: main}]\n"
METRICS = "admin: {bind: 127.0.0.1:1}\nmetrics: "
REGISTRY = "registries:\n  {a: "
TELEMETRY = 'admin: {bind: "127.0.0.1:1"}\ntelemetry: '


def read(text: str, folder: Path = Path(), **environment: str) -> Config:
    """A document without mistakes."""
    config = config_from(Source("f", text), folder, environment)

    assert config is not None
    return config


def mistakes(text: str, folder: Path = Path(), **environment: str) -> list[str]:
    """Lines without the file's name."""
    source = Source("f", text)

    assert config_from(source, folder, environment) is None
    return [line.removeprefix("f:") for line in source.lines()]


def test_the_whole_document_is_read() -> None:
    """Every part of it; relative names start from the document's folder."""
    config = read(RIGHT, Path("/etc/kproxy"))
    cluster = config.clusters["main"]

    assert cluster.bootstrap == [Address("b1", 9092), Address("::1", 9092)]
    assert cluster.dial == {Address("b1.internal", 9092): Address("10.0.0.5", 19092)}
    assert cluster.tls is not None
    assert cluster.tls.verify
    assert config.listeners[0].advertise == Advertise()
    assert config.listeners[1].advertise is False
    assert config.listeners[2].advertise == Advertise.model_validate({"host": "h", "ports": "9193-9292"})
    assert config.limits.max_frame_bytes == 1 << 20
    assert config.limits.idle_timeout == 300.0
    assert config.limits.unknown_apis == "pass"
    assert config.rules == ["/etc/kproxy/rules", "/abs/x.yaml"]
    assert config.state == "/etc/kproxy/state.json"
    assert config.log.format == "json"
    assert config.places()["outside"] == ListenerTraits("main", tls=False)


def test_only_clusters_and_listeners_are_needed() -> None:
    """Everything else has a default."""
    config = read(BASE)

    assert config.admin is None
    assert config.rules == []
    assert config.limits.max_in_flight == 1000


def test_ages_of_connections_are_checked_where_they_stand() -> None:
    """Of the limits and of a listener: durations, and a part that leaves something of the age."""
    text = """\
clusters: {main: {bootstrap: ["b:1"]}}
listeners:
  - {name: a, bind: "h:1", cluster: main, max_connection_age: 1h, max_connection_age_jitter: 1}
  - {name: b, bind: "h:2", cluster: main, max_connection_age: old}
limits: {max_connection_age: -1, max_connection_age_jitter: 10%}
"""

    assert mistakes(text) == [
        "3:94: expected less than 1, got 1",
        '4:63: expected a duration such as 10s (units: ms, s, m, min, h, d), got text "old"',
        "5:30: expected at least 0, got -1",
        '5:61: expected a number, got text "10%"',
    ]


def test_every_mistake_comes_at_once() -> None:
    """In file order, fields and what is between them together."""
    text = """\
clusters:
  main: {bootstrap: [b1, "b2:0"], dail: {}}
  on: {bootstrap: ["b:1"]}
listeners:
  - {name: a, bind: "h:1", cluster: mian, advertise: {port: 1-2}}
  - {name: a, bind: "h:1", cluster: main, advertise: {sni: "b{node}.x:1"}}
limits: {max_in_flight: 0, idle_timeout: soon}
admin: {bind: "0.0.0.0:9190"}
rule: []
"""

    assert mistakes(text) == [
        '2:22: "b1" has no port, write host:port',
        '2:26: expected a port from 1 to 65535, got "b2:0"',
        '2:35: unknown key "dail", did you mean "dial"? allowed: bootstrap, tls, sasl, dial, mark, proxy_protocol',
        '3:3: on without quotes is the boolean true in YAML, write the key in quotes: "on"',
        '5:37: unknown cluster "mian", did you mean "main"? allowed: main, on',
        '5:55: unknown key "port", did you mean "ports"? allowed: host, ports, nodes, sni',
        '6:12: the name "a" is taken by listener 1',
        '6:21: port 1 of h is taken by listener "a"',
        "6:60: sni needs TLS towards clients, and this listener has none",
        "7:25: expected at least 1, got 0",
        '7:42: expected a duration such as 10s (units: ms, s, m, min, h, d), got text "soon"',
        "8:15: 0.0.0.0 can be reached by others; set a token, or bind to 127.0.0.1",
        (
            '9:1: unknown key "rule", did you mean "rules"? allowed: clusters, listeners, workers, limits, admin, '
            "metrics, telemetry, rules, seed, audit, otlp, registries, captures, capture_topics, view, instance, "
            "state, log"
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "1:1: expected a config document (mapping with clusters and listeners), got nothing"),
        ("[]", "1:1: expected a config document (mapping with clusters and listeners), got a list"),
        ("clusters: {}\nlisteners: []", "1:11: expected at least 1 entry, got 0"),
        ("listeners: []", '1:1: "clusters" is missing'),
        (BASE + "rules: rules/", '3:8: expected a list, got text "rules/"'),
        (BASE + "rules: [12]", '3:9: expected text, got the number 12; write "12"'),
        (BASE + "state: ''", "3:8: expected a file name, got nothing"),
        (BASE + 'audit: {dir: "a\\0b"}', r"3:14: a file name cannot hold the character 0: 'a\x00b'"),
        (
            BASE + "limits: {buffer_threshold: 2MiB, max_buffered_bytes: 1MiB}",
            "3:28: expected buffer_threshold of at most seven eighths of max_buffered_bytes (917504), got 2097152",
        ),
        (BASE + "limits: {max_frame_bytes: 10}", "3:27: expected at least 16384, got 10"),
        (BASE + "limits: {max_frame_bytes: 2GiB}", "3:27: expected less than 2147483648 bytes, got 2GiB"),
        (BASE + "limits: {content: {max_fetch_bytes: 1kB}}", "3:37: expected at least 16384 bytes, got 1kB"),
        (
            BASE + "limits: {content: {inline: 1}}",
            '3:20: unknown key "inline", allowed: max_decompressed_bytes, max_fetch_bytes',
        ),
        (BASE + "limits: {connect_timeout: 0}", "3:27: expected more than 0, got 0"),
        (
            BASE.replace("name: main", "name: 'a b'"),
            '2:20: expected a name of at most 100 characters (a-z A-Z 0-9 . _ -), got "a b"',
        ),
        (BASE.replace("cluster: main}", "cluster: main, advertise: true}"), "2:65: expected a mapping, got true"),
        (
            BASE.replace("cluster: main}", "cluster: main, advertise: {nodes: {1: 'a:1', 2: 'b:1'}}}"),
            "2:73: nodes that share port 1 need TLS towards clients to be told apart, and this listener has none",
        ),
        (BASE + METRICS + "{by: [topic, topic]}", '4:23: "topic" stands here twice'),
        (BASE + METRICS + "{by: [topic], only: {group: [a]}}", '4:38: nothing is told by "group": it is not in `by`'),
        (
            BASE + METRICS + "{by: [topic], only: {topic: [/(/]}}",
            '4:39: the regular expression "(" cannot be used: missing ): (',
        ),
        (
            BASE + METRICS + "{by: [colour]}",
            '4:16: expected one of topic, client_id, principal, group, got text "colour"',
        ),
        (BASE + METRICS + "{by: [topic], series: 5000}", "4:32: expected at most 500, got 5000"),
        (BASE + "telemetry: {}", "3:12: metrics need `admin`, because they are served at the admin address"),
        (BASE + "telemetry: {to: [audit]}", "3:18: target audit needs `audit`"),
        (BASE + TELEMETRY + "{to: [otlp]}", '4:18: expected one of metrics, audit, got text "otlp"'),
        (BASE + TELEMETRY + "{listeners: [b]}", '4:25: unknown listener "b", allowed: main'),
        (BASE + TELEMETRY + "{labels: [topic, topic]}", '4:29: "topic" stands here twice'),
        (BASE + TELEMETRY + "{interval: 100ms}", "4:23: expected at least 1 s, got 100ms"),
        (
            BASE + TELEMETRY + "{metrics: [a b]}",
            '4:23: expected a prefix of a metric name (a letter, then a-z A-Z 0-9 . _ -, at most 100), got "a b"',
        ),
        (BASE + REGISTRY + "{url: 'ftp://a'}}", '4:13: expected http://HOST:PORT or https://HOST:PORT, got "ftp://a"'),
        (
            BASE + REGISTRY + "{url: 'http://a:b@c'}}",
            "4:13: expected a URL without user and password (use `username` and `password`)",
        ),
        (BASE + REGISTRY + "{url: 'http://a', tls: {}}}", "4:30: the URL begins with http://, which has no TLS"),
        (BASE + REGISTRY + "{url: 'http://a', username: b}}", "4:7: expected username and password, got no password"),
        (BASE + REGISTRY + "{url: 'http://a', password: b}}", "4:7: expected username and password, got no username"),
        (
            BASE + REGISTRY + "{url: 'http://a', username: 'a:b', password: c}}",
            "4:35: expected a user name without a colon",
        ),
        (BASE + REGISTRY + "{url: 'http://a', clusters: [b]}}", '4:36: unknown cluster "b", allowed: main'),
        (
            BASE + REGISTRY + "{url: 'http://a'}, b: {url: 'http://b'}}",
            "4:7: expected clusters, as ids of several registries overlap",
        ),
        (
            BASE + REGISTRY + "{url: 'http://a', clusters: [main]}, b: {url: 'http://b', clusters: [main]}}",
            "4:76: expected one registry of a cluster, got a and b",
        ),
        (BASE + REGISTRY + "{url: 'http://a', id_bytes: 5}}", "4:35: expected one of 4, 8, got the number 5"),
        (BASE + REGISTRY + "{url: 'http://a', cache: 0}}", "4:32: expected at least 1, got 0"),
        (BASE + "metrics: {by: [topic]}", "3:15: metrics need `admin`, because they are served at the admin address"),
        ("a: [", "2:1: expected a value, or the closing ] or }"),
    ],
)
def test_a_bad_document_is_refused_at_the_place(text: str, mistake: str) -> None:
    """With what was found and what is wanted."""
    assert mistake in mistakes(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "localhost", "[::1]"])
def test_admin_on_loopback_needs_no_token(host: str) -> None:
    """Only this machine can reach it."""
    config = read(BASE + f"admin: {{bind: '{host}:9190'}}")

    assert config.admin is not None
    assert config.admin.token is None


AROUND = "it begins or ends with a blank or a line end, which no header carries"


def test_secrets_come_from_the_environment_or_from_a_file(tmp_path: Path) -> None:
    """And are shown nowhere."""
    (tmp_path / "token").write_text("hunter2\n")
    (tmp_path / "marked").write_text("\ufeffhunter2\r\n")
    for text in ("file:token", "file:marked", "${TOKEN}", "hunter2"):
        config = read(BASE + f"admin: {{bind: '0.0.0.0:9190', token: '{text}'}}", tmp_path, TOKEN="hunter2")

        assert config.admin is not None
        assert config.admin.token is not None
        assert config.admin.token.get_secret_value() == "hunter2"
        assert "hunter2" not in repr(config) + config.model_dump_json()


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("file:none", '3:38: the secret\'s file "{folder}/none" cannot be read: no such file or directory'),
        ("file:empty", "3:38: the secret is empty"),
        (
            "file:big",
            '3:38: the secret\'s file "{folder}/big" cannot be read: it has 70,000 bytes, at most 65,536 are read',
        ),
        ("file:binary", '3:38: the secret\'s file "{folder}/binary" is not UTF-8 text'),
        ("file:mark", "3:38: the secret is empty"),
        ("${NONE}", "3:38: the environment variable NONE is not set"),
        ("", "3:38: the secret is empty"),
        ("file:twice", f"3:38: {AROUND}"),
        ("file:blank", f"3:38: {AROUND}"),
        ("file:lines", "3:38: its character 4 is one that no header carries"),
        ("file:marks", "3:38: its character 1 is one that no header carries"),
        ("5 €", "3:38: its character 3 is one that no header carries"),
    ],
)
def test_a_secret_that_is_not_there_is_named(tmp_path: Path, token: str, words: str) -> None:
    """Once, with the place and the file or variable, and never with what it holds."""
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "big").write_bytes(b"x" * 70_000)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "mark").write_text("\ufeff\n")
    for name, text in (
        ("twice", "one\n\n"),
        ("blank", " one\n"),
        ("lines", "one\ntwo\n"),
        ("marks", "\ufeff\ufeffone"),
    ):
        (tmp_path / name).write_text(text)

    found = mistakes(BASE + f"admin: {{bind: '0.0.0.0:9190', token: '{token}'}}", tmp_path)
    assert found == [words.format(folder=tmp_path)]


def test_a_token_for_reading_is_one_that_can_be_shown(tmp_path: Path) -> None:
    """As the other one; from the next request on nobody would be let in."""
    (tmp_path / "read").write_text("look \n")
    found = mistakes(BASE + "admin: {bind: '0.0.0.0:9190', token: a b!, read_token_file: read}", tmp_path)

    assert found == [f"3:61: {AROUND}"]


def test_tls_files_must_be_there(tmp_path: Path) -> None:
    """Found when the document is read, not at the first handshake."""
    (tmp_path / "cert.pem").write_text("x")
    right = BASE.replace("cluster: main}", "cluster: main, tls: {cert: cert.pem, client_ca: cert.pem}}")
    listener = read(right, tmp_path).listeners[0]

    assert listener.tls is not None
    assert listener.tls.cert == f"{tmp_path}/cert.pem"
    assert listener.tls.verify_clients == "required"
    assert mistakes(right.replace("client_ca: cert.pem", "client_ca: ca.pem"), tmp_path) == [
        f'2:87: the file "{tmp_path}/ca.pem" cannot be read: no such file or directory'
    ]


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        ("{key: c.pem}", '"cert" is missing'),
        ("{cert: c.pem, client_auth: required}", 'client_auth required needs "client_ca" to check certificates with'),
        ("{cert: c.pem, client_ca: c.pem, client_auth: none}", '"client_ca" is never used with client_auth none'),
        (
            "{cert: c.pem, principals: [DEFAULT]}",
            'principals need "client_ca": without it no client shows a certificate',
        ),
        (
            "{cert: c.pem, client_ca: c.pem, principals: ['CN=(.*)']}",
            'expected RULE:pattern/replacement/ (with L or U at the end) or DEFAULT, got "CN=(.*)"',
        ),
        ("{cert: c.pem, ciphers: ROT13}", 'OpenSSL knows no cipher of "ROT13"'),
        ("{cert: c.pem, min_version: 1.1}", 'expected one of 1.2, 1.3, got text "1.1", did you mean "1.3"?'),
    ],
)
def test_tls_towards_clients_must_make_sense(tmp_path: Path, tls: str, words: str) -> None:
    """A setting that could never work, or never be used, is refused."""
    (tmp_path / "c.pem").write_text("x")

    found = mistakes(BASE.replace("cluster: main}", f"cluster: main, tls: {tls}}}"), tmp_path)
    assert [line.split(": ", 1)[1] for line in found] == [words]


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        ("{key: c.pem}", '"key" is given without "cert"'),
        ("{ca: c.pem, verify: false}", '"ca" is never used with verify false'),
        ("{verify: 'no'}", 'expected true or false, got text "no"'),
        ("{server_name: ''}", "expected text, got empty text"),
    ],
)
def test_tls_towards_brokers_must_make_sense(tmp_path: Path, tls: str, words: str) -> None:
    """The same on the other side."""
    (tmp_path / "c.pem").write_text("x")

    found = mistakes(BASE.replace("[b1:9092]}", f"[b1:9092], tls: {tls}}}"), tmp_path)
    assert [line.split(": ", 1)[1] for line in found] == [words]


def test_yaml_1_1_words_are_booleans_where_booleans_are_wanted() -> None:
    """`verify: no` and `advertise: off` mean what they say."""
    text = BASE.replace("[b1:9092]}", "[b1:9092], tls: {verify: no}}").replace(
        "cluster: main}", "cluster: main, advertise: off}"
    )
    config = read(text)

    assert config.clusters["main"].tls is not None
    assert config.clusters["main"].tls.verify is False
    assert config.listeners[0].advertise is False


def test_models_can_be_made_in_python() -> None:
    """Tests and tools need no YAML."""
    listener = ListenerConfig(name="a", bind=Address("h", 1), cluster="main", advertise=Advertise(host="x"))

    assert listener.advertise == Advertise(host="x")


def test_whose_headers_are_believed() -> None:
    """Networks or addresses, one or several; all of it must be right."""
    text = BASE.replace("cluster: main}", "cluster: main, proxy_protocol: {from: %s}}")
    assert read(text % "[10.0.0.0/8, '::1']").listeners[0].proxy_protocol == ProxyProtocol(
        **{"from": ["10.0.0.0/8", "::1"]}
    )
    assert read(text % "10.0.0.1").listeners[0].proxy_protocol is not None
    assert mistakes(text % "lb.example.com")[0].endswith(
        "expected a network such as 10.0.0.0/8, or an address: "
        "'lb.example.com' does not appear to be an IPv4 or IPv6 network"
    )
    assert mistakes(text.replace("from:", "form:") % "1.1.1.1") == [
        '2:70: "from" is missing',
        '2:71: unknown key "form", did you mean "from"? allowed: from',
    ]


LISTENERS = """
clusters: {a: {bootstrap: [b1:9092]}, b: {bootstrap: [b2:9092]}}
listeners:
  - {name: a, cluster: a, %s}
  - {name: b, cluster: b, %s}
"""


@pytest.mark.parametrize(
    ("one", "two", "wrong"),
    [
        ('bind: "h:1"', 'bind: "h:1"', '5:33: port 1 of h is taken by listener "a"'),
        ('bind: "0.0.0.0:1"', 'bind: "10.0.0.1:1"', "5:33: port 1 of 10.0.0.1 overlaps with port 1 of 0.0.0.0, taken"),
        (
            'bind: "[::]:1"',
            'bind: "10.0.0.1:1"',
            "5:33: port 1 of 10.0.0.1 overlaps with port 1 of ::, taken by listen",
        ),
        (
            'bind: "h:1"',
            'bind: "h:2", advertise: {ports: 1-9}',
            "5:59: ports 1-9 of h overlaps with port 1 of h, taken",
        ),
        (
            'bind: "h:1", advertise: {ports: 5-9}',
            'bind: "h:2", advertise: {ports: 9-12}',
            '5:59: ports 9-12 of h overlaps with ports 5-9 of h, taken by listener "a"',
        ),
        (
            'bind: "h:1", advertise: {nodes: {1: "x:7"}}',
            'bind: "h:2", advertise: {nodes: {1: "y:7"}}',
            '5:63: port 7 of h is taken by listener "a"',
        ),
        ('bind: "0.0.0.0:1"', 'bind: "[::1]:1"', None),
        ('bind: "10.0.0.1:1"', 'bind: "10.0.0.2:1"', None),
        ('bind: "h:0"', 'bind: "h:0"', None),
        ('bind: "h:1"', 'bind: "h:2"', None),
        ('bind: "h:1", advertise: {nodes: {1: "x:1", 2: "y:7"}}', 'bind: "g:1"', None),
    ],
)
def test_two_listeners_do_not_want_one_port(one: str, two: str, wrong: str | None) -> None:
    """Of the same address, or of all; a range that is not given is chosen around what is taken."""
    text = LISTENERS % (one, two)
    found = mistakes(text) if wrong else read(text) and []

    assert [line[: len(wrong or "")] for line in found or []] == ([wrong] if wrong else [])


def test_the_admin_address_is_not_a_listener_too() -> None:
    """Also not by all addresses of the machine."""
    text = BASE.replace("h:1", "0.0.0.0:9190") + "admin: {bind: '127.0.0.1:9190'}\n"

    assert mistakes(text) == [
        '3:15: port 9190 of 127.0.0.1 overlaps with port 9190 of 0.0.0.0, taken by listener "main"',
    ]


def test_listeners_share_a_port_by_their_hosts(tmp_path: Path) -> None:
    """Names are served once, TLS is needed, and what is read before the name is the same."""
    (tmp_path / "cert.pem").write_text("")
    tls = 'bind: "h:443", tls: {cert: cert.pem}, '
    one, two = (
        f"{tls}hosts: [{name}.example.com], advertise: {{sni: '{name}{{node}}.example.com:443'}}" for name in "ab"
    )
    wrong = {
        two.replace("b.example", "A.Example"): '5:73: "a.example.com" is served by listener "a" on the same port',
        two.replace("b{node}", "a{node}"): '5:106: "a{node}.example.com" is served by listener "a" on the same port',
        f"{two}, proxy_protocol: {{from: 10.0.0.1}}": (
            '5:150: expected the proxy_protocol of listener "a", since it is read before the host name; got another '
            "one on the same port"
        ),
        'bind: "h:443", hosts: [x.test]': "5:49: hosts are asked for in TLS handshakes, and this listener has no tls",
        f"{tls.replace('443', '444')}hosts: [1.2.3.4]": (
            '5:73: "1.2.3.4" is an IP address, and TLS clients send names only'
        ),
        tls.removesuffix(", "): '5:33: port 443 of h is taken by listener "a"',
    }

    assert read(LISTENERS % (one, two), tmp_path).listeners[1].hosts == ["b.example.com"]
    assert {text: mistakes(LISTENERS % (one, text), tmp_path) for text in wrong} == {
        text: [line] for text, line in wrong.items()
    }


def test_a_transparent_listener_leaves_addresses_alone() -> None:
    """`true` is all defaults; what says how brokers appear, or whose connection it is, has no place beside it."""
    text = BASE.replace("cluster: main}", "cluster: main, transparent: %s}")
    plain, through = (read(text % value).listeners[0] for value in ("true", "{by: tproxy, keep_source: true}"))

    assert plain.transparent is not None and through.transparent is not None
    assert (plain.transparent.by, plain.transparent.keep_source, plain.advertise) == ("redirect", False, False)
    assert (through.transparent.by, through.transparent.keep_source) == ("tproxy", True)
    assert read(text % "false").listeners[0].transparent is None
    assert mistakes(text % "{keep_source: true}") == ["2:81: keep_source needs by: tproxy"]
    assert mistakes(text % "true, advertise: {host: h}, proxy_protocol: {from: 1.1.1.1}") == [
        "2:84: advertise has no meaning where connections go to where their clients want",
        "2:111: proxy_protocol has no meaning where connections go to where their clients want",
    ]


def test_brokers_behind_unix_sockets(tmp_path: Path) -> None:
    """An absolute path; a certificate needs a name to be checked against; clients are never sent to one."""
    text = "clusters: {main: {bootstrap: ['%s']%s}}\nlisteners: [{name: main, bind: 'h:1', cluster: main}]\n"
    server = read(text % ("unix:/run/kafka.sock", ", dial: {'b:1': 'unix:/x'}")).clusters["main"]

    assert [str(one) for one in (*server.bootstrap, *server.dial.values())] == ["unix:/run/kafka.sock", "unix:/x"]
    assert read(text % ("unix:/k", ", tls: {server_name: b1}")).clusters["main"].tls is not None
    assert mistakes(text % ("unix:kafka.sock", "")) == [
        '1:31: expected an absolute path such as unix:/run/kafka.sock, got "unix:kafka.sock"'
    ]
    assert mistakes(text % (f"unix:/{'x' * 107}", ""))[0].endswith("has 108 bytes of path, expected at most 107")
    assert mistakes(text % ("unix:/k", ", tls: {}")) == [
        "1:48: unix:/k has no host name to check a certificate against, server_name is needed"
    ]
    assert len(mistakes(BASE.replace("h:1", "unix:/run/kproxy.sock"))) == 1
