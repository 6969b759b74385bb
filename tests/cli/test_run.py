"""`kproxy run`: from flags or a document to a config, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import kproxy.app.app
import kproxy.app.supervisor
from kproxy.app.config.document import Config
from kproxy.base.errors import DocumentError
from kproxy.cli import main
from kproxy.rules.document.read import load_rules
from kproxy.rules.values.address import Address

DOCUMENT = """
clusters: {c: {bootstrap: ["b1:9092"]}}
listeners: [{name: l, bind: "127.0.0.1:9092", cluster: c}]
admin: {bind: "127.0.0.1:1", token: t}
rules: [one.yaml]
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Configs that would have been run."""
    configs: list[Config] = []

    def run(config: Config, origin: object) -> int:
        configs.append(config)
        return 0

    monkeypatch.setattr(kproxy.app.app, "run", run)
    return configs


def call(*arguments: str) -> tuple[int, str]:
    """Exit code and all that was printed."""
    result = CliRunner().invoke(main, ["run", *arguments])
    return result.exit_code, result.output


def test_flags_make_one_cluster_and_one_listener(started: list[Config]) -> None:
    """Both are called main; rules may be given several times."""
    flags = ["--upstream", "b1:9092, [::1]:9093", "--listen", "0.0.0.0:19092", "--admin", "127.0.0.1:9190"]

    assert call(*flags, "--rules", "a.yaml", "--rules", "rules") == (0, "")
    config = started[0]
    assert config.clusters["main"].bootstrap == [Address("b1", 9092), Address("::1", 9093)]
    assert [(one.name, one.bind, one.cluster) for one in config.listeners] == [
        ("main", Address("0.0.0.0", 19092), "main")
    ]
    assert config.rules == ["a.yaml", "rules"]
    assert config.admin is not None
    assert config.admin.bind == Address("127.0.0.1", 9190)


@pytest.mark.parametrize(
    ("flag", "host", "ports"),
    [
        ("localhost", "localhost", None),
        ("kafka.example.com:9093-9100", "kafka.example.com", (9093, 9100)),
        ("192.0.2.1:9093", "192.0.2.1", (9093, 9093)),
        ("[2001:db8::1]", "2001:db8::1", None),
        ("[2001:db8::1]:9093-9094", "2001:db8::1", (9093, 9094)),
    ],
)
def test_brokers_can_appear_under_another_host(
    started: list[Config], flag: str, host: str, ports: tuple[int, int] | None
) -> None:
    """As behind published ports of a container, whose own address nobody outside can reach."""
    assert call("--upstream", "b1:9092", "--advertise", flag) == (0, "")
    advertise = started[0].listeners[0].advertise
    assert advertise
    assert (advertise.host, advertise.ports) == (host, ports)


def test_it_listens_on_loopback_by_default(started: list[Config]) -> None:
    """On Kafka's usual port; nobody else reaches a proxy that was not opened on purpose."""
    assert call("--upstream", "b1:9092")[0] == 0
    assert started[0].listeners[0].bind == Address("127.0.0.1", 9092)
    assert started[0].admin is None


def test_a_document_can_be_added_to(started: list[Config], tmp_path: Path) -> None:
    """Rules are added, the admin address is replaced and keeps its token."""
    (tmp_path / "c.yaml").write_text(DOCUMENT)

    assert call("--config", f"{tmp_path}/c.yaml", "--rules", "two.yaml", "--admin", "0.0.0.0:2") == (0, "")
    config = started[0]
    assert config.rules == [f"{tmp_path}/one.yaml", "two.yaml"]
    assert config.admin is not None
    assert config.admin.bind == Address("0.0.0.0", 2)
    assert config.admin.token is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "either --upstream HOST:PORT or --config FILE is needed"),
        (["--upstream", ""], "either --upstream HOST:PORT or --config FILE is needed"),
        (["--upstream", "b1"], 'Invalid value for --upstream: "b1" has no port, write host:port'),
        (["--upstream", "b1:1,"], 'Invalid value for --upstream: "" has no port'),
        (["--upstream", "b1:0"], 'Invalid value for --upstream: expected a port from 1 to 65535, got "b1:0"'),
        (["--upstream", "b1:1", "--listen", "x"], 'Invalid value for --listen: "x" has no port'),
        (["--upstream", "b1:1", "--admin", "0.0.0.0:1"], "Invalid value for --admin: 0.0.0.0 can be reached by others"),
        (["--upstream", "b1:1", "--config", "c"], "--upstream is already set by the --config file"),
        (["--listen", "b1:1", "--config", "c"], "--listen is already set by the --config file"),
        (["--advertise", "b1", "--config", "c"], "--advertise is already set by the --config file"),
        (["--upstream", "b1:1", "--advertise", "b1:"], '"b1:" ends behind the colon, write b1 or b1:9093-9100'),
        (["--upstream", "b1:1", "--advertise", "b 1"], "Invalid value for --advertise: expected a host name"),
        (
            ["--upstream", "b1:1", "--advertise", "b1:9-3"],
            "Invalid value for --advertise: the range of ports ends at 3",
        ),
    ],
)
def test_bad_flags_are_usage_errors(started: list[Config], arguments: list[str], words: str) -> None:
    """Exit code 2, nothing is started."""
    code, text = call(*arguments)

    assert code == 2
    assert words in " ".join(text.split())
    assert started == []


def test_a_bad_document_is_shown_with_all_its_mistakes(started: list[Config], tmp_path: Path) -> None:
    """Exit code 1, as lines that editors understand."""
    path = tmp_path / "c.yaml"
    path.write_text(DOCUMENT.replace("b1:9092", "b1") + "limit: {}\n")
    code, text = call("--config", str(path))

    assert code == 1
    assert text.splitlines()[0] == f'{path}:2:28: "b1" has no port, write host:port'
    assert text.splitlines()[1].startswith(f'{path}:6:1: unknown key "limit", did you mean "limits"?')
    assert started == []


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("0", "--workers: 0 processes, expected 1 to 256"),
        ("-2", "--workers: -2 processes, expected 1 to 256"),
        ("257", "--workers: 257 processes, expected 1 to 256"),
        ("two", "'--workers': 'two' is not a valid integer"),
    ],
)
def test_numbers_of_workers_that_cannot_be(started: list[Config], number: str, message: str) -> None:
    """Usage, with the number and what is allowed."""
    code, said = call("--upstream", "b1:9092", "--workers", number)

    assert (code, started) == (2, [])
    assert f"Invalid value for {message}" in said


def test_seeds_have_64_bits(started: list[Config], tmp_path: Path) -> None:
    """By the flag, in the document and in a rule: worker processes cannot be told of more."""
    rules, document, many = tmp_path / "r.yaml", tmp_path / "c.yaml", 2**63
    code, said = call("--upstream", "b1:9092", "--seed", str(many))
    assert code == 2
    assert f"--seed: expected a number of at most 64 bits, {-many} to {many - 1}, got {many}" in said

    document.write_text(DOCUMENT + f"seed: {-many - 1}\n")
    code, said = call("--config", str(document))
    assert (code, f"{document}:6:7: expected a number of at most 64 bits" in said) == (1, True), said

    rules.write_text(f"rules: [{{name: a, kind: delay, delay: 1s, when: {{probability: 0.5, seed: {many}}}}}]\n")
    with pytest.raises(DocumentError, match="a number of at most 64 bits"):
        load_rules([rules])
    assert call("--upstream", "b1:9092", "--seed", str(many - 1)) == (0, "")
    assert [one.seed for one in started] == [many - 1]


def test_workers_are_of_the_flag_or_the_document(
    started: list[Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flag goes before; with one there is no supervisor; a number in a document is checked like all else there."""
    supervised: list[Config] = []
    monkeypatch.setattr(kproxy.app.supervisor, "run", lambda config, origin: supervised.append(config) or 0)
    document = tmp_path / "kproxy.yaml"
    document.write_text(DOCUMENT + "workers: 3\n")

    assert call("--config", str(document)) == (0, "")
    assert call("--config", str(document), "--workers", "2") == (0, "")
    assert call("--config", str(document), "--workers", "1") == (0, "")
    assert ([one.workers for one in supervised], [one.workers for one in started]) == ([3, 2], [1])
    for wrong in ("0", "300", "many"):
        document.write_text(DOCUMENT + f"workers: {wrong}\n")
        code, said = call("--config", str(document))
        assert (code, f"{document}:6:10: " in said) == (1, True), said
