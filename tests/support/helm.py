"""The Helm chart in deploy/helm as Helm itself renders it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from .built_programs import built

FOLDER = Path(__file__).parents[2] / "deploy" / "helm"
CHART = FOLDER / "kproxy"
SETS = sorted((FOLDER / "values").glob("*.yaml"))
"""The documented sets of values."""
BROKERS = {"cluster": {"bootstrap": ["kafka:9092"]}}
EVERYTHING = {
    **BROKERS,
    "listener": {"tls": {"cert": "/etc/kproxy-secrets/tls/tls.crt", "key": "/etc/kproxy-secrets/tls/tls.key"}},
    "secrets": {"tls": "tls"},
    "advertise": {"nodes": {"host": "a.b", "ports": {"0": 9093}}, "sni": {"domain": "a.b"}},
    **{
        name: {"enabled": True}
        for name in ("persistence", "autoscaling", "networkPolicy", "podMonitor", "prometheusRule")
    },
    "webhook": {"enabled": True, "certSecret": "tls", "caBundle": "YQ=="},
}
"""All that the chart can make, but for the ways to reach brokers."""


def helm(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run Helm, and return what came of it."""
    return subprocess.run([built("helm"), *words], input=stdin, capture_output=True, text=True, check=False)


def rendered(*words: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the objects of a release called kproxy in the namespace shop, with these values and words for Helm."""
    stdin = json.dumps(values or {})
    done = helm("template", "kproxy", str(CHART), "--namespace", "shop", *words, "--values", "-", stdin=stdin)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one]


def refused(values: dict[str, Any]) -> str:
    """Return what Helm says of values that are wrong."""
    done = helm("template", "kproxy", str(CHART), "--values", "-", stdin=json.dumps(values))
    assert done.returncode != 0, "these values are taken"
    lines = [line for line in done.stderr.splitlines() if line and "found symbolic link" not in line]
    return "\n".join(line for line in lines if not line.startswith("Use --debug"))
