"""Other proxies that know Kafka's protocol, beside kproxy in the same run: `run.py --peers`.

Kroxylicious comes from its published jars, through Maven. kafka-proxy has no published binary that a package manager
brings: build it (`go build` in its source) and name it in KAFKA_PROXY; without that it is left out, and said so.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from kproxy.jars import jars, java

from .targets import HERE, HOST, Target

KROXYLICIOUS = "0.12.0"
"""The newest version whose runtime could be fetched whole."""
DEPENDENCY = """\
    <dependency><groupId>io.kroxylicious</groupId><artifactId>kroxylicious-runtime</artifactId><version>{}</version></dependency>"""
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
    libs = jars("kroxylicious", KROXYLICIOUS, DEPENDENCY.format(KROXYLICIOUS), "kroxylicious-runtime-*.jar")
    source = HERE / "java" / "RunKroxylicious.java"
    return [java(), "-Xmx1g", "-Dlog4j2.level=WARN", "-cp", f"{libs}/*", source, path]


def kafka_proxy(folder: Path, listen: int, upstream: int) -> list[object]:
    return [
        os.environ["KAFKA_PROXY"], "server", "--bootstrap-server-mapping", f"{HOST}:{upstream},{HOST}:{listen}",
        "--default-listener-ip", HOST, "--dynamic-sequential-min-port", listen + 1, "--http-disable",
        "--log-level", "warning",
    ]  # fmt: skip


def peers() -> list[Target]:
    """Those that can be run here."""
    found = [Target("kroxylicious", f"Kroxylicious {KROXYLICIOUS}, no filters", False, kroxylicious)]
    if os.environ.get("KAFKA_PROXY"):
        found.append(Target("kafka-proxy", "grepplabs kafka-proxy", False, kafka_proxy))
    else:
        print("kafka-proxy is left out: KAFKA_PROXY does not name its binary", file=sys.stderr)
    return found
