"""The alerts in deploy/prometheus fire when they should, and ask for metrics that there are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.tools("promtool")
FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
DOCS = Path(__file__).parents[2] / "docs"
METRICS = DOCS / "metrics.md"


def promtool(*words: str) -> str:
    path = shutil.which("promtool")
    assert path, "no promtool found, tests of the alerts need it (Debian: apt-get install prometheus)"
    done = subprocess.run([path, *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_accepts_the_files(tmp_path: Path) -> None:
    """The config with its token in a file that is there, as compose puts it."""
    assert "SUCCESS: 19 rules found" in promtool("check", "rules", "alerts.yaml")
    (tmp_path / "alerts.yaml").write_text((FOLDER / "alerts.yaml").read_text())
    (tmp_path / "token").write_text("secret")
    text = (FOLDER / "prometheus.yaml").read_text().replace("/run/secrets/token", str(tmp_path / "token"))
    (tmp_path / "prometheus.yaml").write_text(text)
    promtool("check", "config", str(tmp_path / "prometheus.yaml"))


def test_each_alert_fires_when_it_should_and_not_before() -> None:
    """Every alert has a case in alerts.test.yaml in which it fires."""
    promtool("test", "rules", "alerts.test.yaml")
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    tested = yaml.safe_load((FOLDER / "alerts.test.yaml").read_text())["tests"]
    fired = {
        case["alertname"] for one in tested for case in one["alert_rule_test"] if case.get("exp_alerts")
    }  # fmt: skip
    assert {rule["alert"] for rule in group["rules"]} == fired


def test_each_alert_has_a_runbook() -> None:
    """A section of the page about monitoring, of two sentences or more; no other alerts have one."""
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    _, *sections = re.split(r"^###? (.+)$", (DOCS / "monitor.md").read_text(), flags=re.MULTILINE)
    runbooks = {head: text for head, text in zip(sections[::2], sections[1::2], strict=True) if head[:6] == "Kproxy"}
    assert runbooks.keys() == {rule["alert"] for rule in group["rules"]}
    assert {head for head, text in runbooks.items() if len(re.findall(r"\w[.] |[.]$", text, re.MULTILINE)) < 2} == set()


def test_alerts_ask_for_metrics_that_there_are() -> None:
    """By the page of metrics, which is held against what kproxy serves."""
    known = set(re.findall(r"`(kproxy_\w+)`", METRICS.read_text()))
    asked = set(re.findall(r"\bkproxy_\w+", (FOLDER / "alerts.yaml").read_text()))
    assert {name.removesuffix("_bucket") for name in asked} <= known
