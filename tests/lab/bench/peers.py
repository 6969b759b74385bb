"""Other proxies for Kafka's protocol, measured in the same run as kproxy: `run.py --peers`.

Kroxylicious: its runtime from Maven, or the `libs` folder of an unpacked release, named by KROXYLICIOUS.
kafka-proxy: a binary from `go build`, named by KAFKA_PROXY; not measured if the variable is not set.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from kproxy.base.jars import jars, java
from tests.lab.bench.targets import HERE, HOST, Target

KROXYLICIOUS = "0.12.0"  # the newest release that Maven resolved on 2026-11-27; for a newer one see KROXYLICIOUS
DEPENDENCY = """\
    <dependency><groupId>io.kroxylicious</groupId><artifactId>kroxylicious-runtime</artifactId><version>{}</version></dependency>"""
RUNTIME = "kroxylicious-runtime-"
MOST_NODES = 20


def kroxylicious(folder: Path, listen: int, upstream: int) -> list[object]:
    document = {
        "virtualClusters": [
            {
                "name": "bench",
                "targetCluster": {"bootstrapServers": f"{HOST}:{upstream}"},
                "gateways": [
                    {
                        "name": "all",
                        "portIdentifiesNode": {
                            "bootstrapAddress": f"{HOST}:{listen}",
                            "nodeStartPort": listen + 1,
                            "nodeIdRanges": [{"name": "nodes", "start": 1, "end": MOST_NODES}],
                        },
                    }
                ],
            }
        ]
    }
    path = folder / f"kroxylicious-{listen}.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    libs, _ = kroxylicious_libs()
    source = HERE / "java" / "RunKroxylicious.java"
    return [java(), "-Xmx1g", "-Dlog4j2.level=WARN", "-cp", f"{libs}/*", source, path]


def kroxylicious_libs() -> tuple[Path, str]:
    """Return the folder with Kroxylicious's jars, and its version, read from the runtime's file name."""
    named = os.environ.get("KROXYLICIOUS")
    if named:
        libs = Path(named).resolve()
    else:
        libs = jars("kroxylicious", KROXYLICIOUS, DEPENDENCY.format(KROXYLICIOUS), f"{RUNTIME}*.jar")
    found = sorted(libs.glob(f"{RUNTIME}*.jar"))
    if not found:
        sys.exit(f"KROXYLICIOUS: expected a folder with {RUNTIME}*.jar, got {named}")
    return libs, found[-1].stem.removeprefix(RUNTIME)


def kafka_proxy(folder: Path, listen: int, upstream: int) -> list[object]:
    return [
        os.environ["KAFKA_PROXY"], "server", "--bootstrap-server-mapping", f"{HOST}:{upstream},{HOST}:{listen}",
        "--default-listener-ip", HOST, "--dynamic-sequential-min-port", listen + 1, "--http-disable",
        "--log-level", "warning",
    ]  # fmt: skip


def peers() -> list[Target]:
    """Return the proxies that this machine can run."""
    _, version = kroxylicious_libs()
    found = [Target("kroxylicious", f"Kroxylicious {version}, no filters", False, kroxylicious)]
    if os.environ.get("KAFKA_PROXY"):
        found.append(Target("kafka-proxy", "grepplabs kafka-proxy", False, kafka_proxy))
    else:
        print("kafka-proxy is left out: KAFKA_PROXY does not name its binary", file=sys.stderr)
    return found
