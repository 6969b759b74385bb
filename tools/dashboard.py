"""Write Grafana's dashboard in the form for sharing: `python tools/dashboard.py FILE`.

The file in deploy/grafana is for provisioning and selects its data source by a variable. The form for sharing asks for
the data source at import (`__inputs`) and names the plugins that it needs (`__requires`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).parents[1] / "deploy" / "grafana" / "kproxy.json"
VARIABLE, INPUT = "source", "DS_PROMETHEUS"
GRAFANA = "10.4.0"  # older versions have an older schemaVersion
PLUGINS = {
    "barchart": "Bar chart", "bargauge": "Bar gauge", "gauge": "Gauge", "heatmap": "Heatmap", "logs": "Logs",
    "piechart": "Pie chart", "stat": "Stat", "table": "Table", "text": "Text", "timeseries": "Time series",
}  # fmt: skip
"""Names of panel plugins by id."""


def shared(dashboard: dict[str, Any]) -> dict[str, Any]:
    """Return a dashboard for import elsewhere. Raises ValueError for panels of unknown plugins."""
    panels = {panel["type"] for panel in all_panels(dashboard)} - {"row"}
    if unknown := panels - PLUGINS.keys():
        raise ValueError(f"expected panels of {', '.join(PLUGINS)}, got {', '.join(sorted(unknown))} (at {DASHBOARD})")
    needed = {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"}
    text = json.dumps(dashboard).replace(f"${{{VARIABLE}}}", f"${{{INPUT}}}")
    made: dict[str, Any] = json.loads(text) | {"id": None}
    made["templating"]["list"] = [one for one in made["templating"]["list"] if one["name"] != VARIABLE]
    return {
        "__inputs": [{
            "name": INPUT, "label": "Prometheus", "description": "Prometheus with the metrics of kproxy",
            "type": "datasource", "pluginId": needed["id"], "pluginName": needed["name"],
        }],
        "__elements": {},
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": GRAFANA}, needed,
            *({"type": "panel", "id": one, "name": PLUGINS[one], "version": ""} for one in sorted(panels)),
        ],
        **made,
    }  # fmt: skip


def all_panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the panels, including those in collapsed rows."""
    return [one for panel in dashboard["panels"] for one in (panel, *panel.get("panels", ()))]


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        sys.exit("expected one FILE to write, for example dist/kproxy-dashboard.json")
    file = Path(arguments[0])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(shared(json.loads(DASHBOARD.read_text())), indent=2) + "\n")
    sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
