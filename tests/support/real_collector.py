"""The OpenTelemetry project's own collector, which writes what it takes to files and serves metrics to Prometheus."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from kproxy.testing.process import Child, free_port
from tests.support.built_programs import built
from tests.support.otlp_collector import MESSAGES, TakenTelemetry, message_of


class RealCollector(TakenTelemetry):
    """Collector of the parts in `otelcol/main.go`, with its files in a folder. `http`: settings of its receiver."""

    def __init__(self, folder: Path, http: Mapping[str, Any] | None = None) -> None:
        self.folder, self.port, self.prometheus = folder, free_port(), free_port()
        signals = {"metrics": ["file/metrics", "prometheus"], "logs": ["file/logs"], "traces": ["file/traces"]}
        self.config = folder / "collector.yaml"
        self.config.write_text(yaml.safe_dump({
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{self.port}", **(http or {})}}}},
            "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{self.prometheus}"}} | {
                f"file/{name}": {"path": str(folder / f"{name}.ndjson"), "flush_interval": "50ms", "append": True}
                for name in signals
            },
            "service": {
                "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
                "pipelines": {name: {"receivers": ["otlp"], "exporters": to} for name, to in signals.items()},
            },
        }))  # fmt: skip
        self.up()

    def up(self) -> None:
        """Start it, at the same port as before, and wait until it listens."""
        self.child = Child([str(built("otelcol")), "--config", str(self.config)], self.folder / "collector.log")
        self.child.wait_until(self.listens, 30, "the collector")

    def down(self) -> None:
        """Stop it; it writes what it has taken."""
        assert self.child.stop() == 0, self.child.tail()

    def listens(self) -> bool:
        """Return True if it answers."""
        try:
            urllib.request.urlopen(f"{self.endpoint}/v1/logs", timeout=60)
        except urllib.error.HTTPError as error:
            return error.code == 405  # it wants a POST
        except OSError:
            return False
        return False

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def messages(self) -> list[Any]:
        return [message_of(kind, line) for path, (kind, _) in MESSAGES.items() for line in self._lines(path)]

    def _lines(self, path: str) -> Iterator[bytes]:
        file = self.folder / f"{path.rpartition('/')[2]}.ndjson"
        if file.exists():
            whole, _, _ = file.read_bytes().rpartition(b"\n")  # the last one may not be whole yet
            yield from filter(None, whole.split(b"\n"))

    def scraped(self) -> str:
        """Return what it serves to Prometheus."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.prometheus}/metrics", timeout=60) as answer:
            return str(answer.read().decode())
