"""The how-to pages' examples run as they stand."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml

from kproxy.app.config.document import config_from
from kproxy.protocol import Message, apis, encode
from kproxy.record.metrics.client_telemetry import PREFIX
from kproxy.record.metrics.totals import METRICS
from kproxy.record.metrics.traffic import EVENT_COUNTERS
from kproxy.rules.document.read import parse_rules
from kproxy.rules.values.source import Source
from kproxy.runtime.config.network import Limits
from kproxy.testing.exchanges import SeenExchange
from kproxy.testing.inject import Kproxy
from kproxy.testing.injected import Injected
from kproxy.testing.process import Proxy
from kproxy.tools.verify import checks
from tests.howto import blocks, examples
from tests.support.fake_broker import FakeBroker

pytestmark = [pytest.mark.process, pytest.mark.tools("jq", "tshark")]
DOCS = Path(__file__).parent.parent / "docs"


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def test_examples_of_the_python_api_run() -> None:
    """They run on a Metadata request and its response; their own assertions hold."""
    metadata = next(api for api in apis() if api.name == "Metadata")
    header = {"request_api_key": 3, "request_api_version": 12, "correlation_id": 1, "client_id": "tester"}
    asked = {"topics": [{"topic_id": UUID(int=0), "name": "orders"}]}
    broker = {"node_id": 1, "host": "b1", "port": 9092, "rack": None}
    names: dict[str, Any] = {
        "request_frame": encode(Message(metadata, 12, header, asked)),
        "response_frame": encode(Message(metadata, 12, {"correlation_id": 1}, {"brokers": [broker]})),
    }

    for block in python_blocks("reference.md"):
        exec(compile(block, "reference.md", "exec"), names)

    assert b"elsewhere" in names["changed"]


def test_the_commands_of_the_admin_page(tmp_path: Path) -> None:
    """They print what the page shows, on a proxy with one rule; … stands for anything, and blanks are alike."""
    rule = {"name": "orders lives elsewhere", "kind": "rename_topic", "topics": {"orders": "prod.orders"}}
    with FakeBroker() as broker, Proxy(broker.address, rules=[rule]) as proxy:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "KPROXY_ADMIN": f"http://{proxy.admin}",
        }
        for command, expected in console_examples("admin-api.md"):
            ran = subprocess.run(
                ["bash", "-c", command.replace("localhost:9190", proxy.admin)],
                cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                check=False,
            )  # fmt: skip
            pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("…"))
            assert re.fullmatch(pattern, " ".join(ran.stdout.split())), f"{command}\n{ran.stdout}"


def console_examples(page: str) -> list[tuple[str, str]]:
    """Return the commands of the page's `console` blocks, each with its expected output."""
    texts = [text for language, text in blocks(page) if language == "console"]
    return [(one.command, one.expected) for text in texts for one in examples(text)]


@pytest.mark.parametrize("page", ["test-faults.md", "explore.md"])
def test_the_examples_of_the_testing_pages(tmp_path: Path, page: str) -> None:
    """The test files of a page pass with the `pytest` command of its CI workflow."""
    for block in python_blocks(page):
        name = block.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(block)
    workflows = [
        yaml.safe_load(text)["jobs"] for language, text in blocks(page) if language == "yaml" and "jobs:" in text
    ]
    steps = [step for jobs in workflows for job in jobs.values() for step in job["steps"]]
    lines = [step["run"] for step in steps if step.get("run", "").startswith("pytest ")] or ["pytest"]

    ran = subprocess.run(
        [sys.executable, "-m", *shlex.split(lines[0]), "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    tests = sum(block.count("\ndef test_") + block.count("\nasync def test_") for block in python_blocks(page))
    tests += sum(block.count('parametrize("number", [1, 2])') for block in python_blocks(page))
    assert f"\n{tests} passed" in ran.stdout, ran.stdout + ran.stderr


def test_fixture_reference_names_exist_in_the_code() -> None:
    """Attributes and methods exist; the last table has all options, settings and markers of the plugin."""
    part = (DOCS / "test-faults.md").read_text().partition("## Fixture reference")[2].partition("\n### ")[0]
    *classes, _, options = re.findall(r"(?:^\|.*\n)+", part, re.MULTILINE)
    for of, table in zip((Kproxy, Injected, SeenExchange), classes, strict=True):
        cells = " ".join(line.split("|")[1] for line in table.splitlines()[2:])
        names = set(re.findall(r"`(?:await )?(\w+)", cells))
        assert {
            name for name in names if not re.search(rf"\b(def|self\.|, self\.|) ?{name}\b", inspect.getsource(of))
        } == set()
    named = set(re.findall(r"--kproxy-[\w-]+|\bkproxy_\w+", options))
    code = (DOCS.parent / "kproxy" / "testing" / "pytest_plugin.py").read_text()
    assert named == set(re.findall(r'"(--kproxy-\w+|kproxy_\w+)"', code)) - {"kproxy_kafka", "kproxy_cluster"}


def test_nothing_tells_users_to_install_another_project() -> None:
    """`kproxy` on the public package index is somebody else's: pages and messages name a checkout, or a built wheel."""
    root = DOCS.parent
    texts = [*DOCS.rglob("*.md"), *root.glob("*.md"), *(root / "kproxy").rglob("*.py")]
    wrong = re.compile(r"pip3? install +(-\S+ +)*['\"]?kproxy(?![\w/])")
    page = root / "docs" / "install.md"

    assert [path.name for path in texts if path != page and wrong.search(path.read_text())] == []
    assert "**`pip install kproxy` installs another project**" in page.read_text()


def test_every_guarantee_of_the_security_model_names_tests_that_are_there() -> None:
    page = (DOCS / "security-model.md").read_text()
    promises = page.partition("## Guarantees and tests")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in promises.splitlines() if line.startswith("| ")][1:]

    assert len(rows) > 10
    for promise, held_by in rows:
        files = re.findall(r"`(tests/[^`]+)`", held_by)
        assert files, promise
        for name in files:
            assert re.search(r"def test_|class Test", (DOCS.parent / name).read_text()), f"{name} has no test"


def test_shared_limits_table_has_every_limit() -> None:
    """Each field of the model has a row, with the default that the page about the config has."""
    page = (DOCS / "scale.md").read_text().partition("## Shared limits")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    heads = ["limit", "default", "share per client", "share per network", "share per cluster", "at the limit"]
    assert rows[0] == heads
    assert {len(row) for row in rows} == {6}
    config = (DOCS / "configuration.md").read_text().partition("## limits")[2].partition("\n## ")[0]
    defaults = dict(re.findall(r"^\| `(\w+)` \| .*? \| (`[^`]+`) \|", config, re.MULTILINE))
    listed = {row[0].removeprefix("`limits.").strip("`"): row[1] for row in rows if row[0].startswith("`limits.")}
    defaults["content"] = f"{defaults['max_decompressed_bytes']}, {defaults['max_fetch_bytes']}"
    assert listed.keys() == Limits.model_fields.keys()
    assert {
        name: (default, defaults.get(name)) for name, default in listed.items() if default != defaults.get(name)
    } == {}


def test_table_of_metrics_has_every_metric() -> None:
    """The generated table names the metrics in the code of all collectors, and no others."""
    collector = "".join(
        (DOCS.parent / "kproxy" / "record" / file).read_text()
        for file in ("metrics/traffic.py", "metrics/merged.py", "component_collectors.py")
    )
    page = (DOCS / "metrics.md").read_text().partition("<!-- table")[2].partition("<!-- end -->")[0]
    served = set(re.findall(r'"(kproxy_\w+)"', collector)) | {"kproxy_requests", "kproxy_responses"}
    for file in [
        DOCS.parent / "kproxy/record/metrics/worker_totals.py",
        DOCS.parent / "kproxy/record/otlp/export.py",
        DOCS.parent / "kproxy/runtime/upstreams/registry.py",
    ]:
        served |= set(re.findall(r'"(kproxy_\w+)"', file.read_text()))
    served |= {metric.name for metrics in METRICS.values() for metric in metrics}
    served |= {f"kproxy_{event}" for event in EVENT_COUNTERS}

    named = {name.removesuffix("_total") for name in re.findall(r"`(kproxy_\w+)`", page)}
    assert named - {"kproxy_webhook_reviews"} == served - {PREFIX}


def test_verify_page_anomalies_name_each_check() -> None:
    text = (DOCS / "verify.md").read_text()
    rows = re.findall(r"^\|[^|]*\|([^|]*)\|", text.partition("## Anomalies")[2].partition("\n## ")[0], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}
    assert named == set(checks())


def test_the_rules_of_the_admin_page_are_right() -> None:
    """Whoever copies them has no mistake in them."""
    for number, block in enumerate(
        re.findall(r"^```yaml\n(.*?)^```$", (DOCS / "admin-api.md").read_text(), re.MULTILINE | re.DOTALL)
    ):
        assert len(parse_rules(block, f"admin-api.md block {number}")) > 0


def test_tls_page_commands_and_configs_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands print the shown output; configs are valid if their files exist."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "ALICES_PASSWORD": "wonderland", "BOBS_PASSWORD": "builder",
    }  # fmt: skip
    for command, expected in console_examples("tls.md"):
        ran = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=60, check=False)  # fmt: skip
        assert ran.stdout == expected.rstrip("\n") + "\n" * bool(expected.strip()), command
    page = (DOCS / "tls.md").read_text()
    documents = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for name in re.findall(r"[\w-]+\.pem", page):
        (tmp_path / name).touch()
    monkeypatch.setenv("KPROXY_PASSWORD", "secret")
    for document in documents:
        source = Source("tls.md", document)
        config_from(source, tmp_path)
        assert source.lines() == []
    assert len(documents) >= 2
