"""AdmissionReviews as Kubernetes sends them for new pods, and JSON patches (RFC 6902) as it applies them."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "admin" / "webhook" / "reviews"
"""Folder of AdmissionReviews as an API server of Kubernetes 1.28 forms them, with all that it has put into a pod."""


def review_of(name: str = "replicaset") -> dict[str, Any]:
    """Return a kept AdmissionReview."""
    review: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return review


def review_with(
    annotations: Mapping[str, Any], spec: Mapping[str, Any] | None = None, name: str = "replicaset"
) -> bytes:
    """Return the bytes of a kept review whose pod has these annotations behind `kproxy.io/`, and these parts in its
    spec."""
    review = review_of(name)
    pod = review["request"]["object"]
    pod["metadata"]["annotations"] = {f"kproxy.io/{key}": value for key, value in annotations.items()}
    pod["spec"] |= spec or {}
    return json.dumps(review).encode()


def patched(review: Mapping[str, Any] | bytes, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod of a review after the patch of the answer to it."""
    whole = json.loads(review) if isinstance(review, bytes) else review
    operations = json.loads(base64.b64decode(answer["response"]["patch"], validate=True))
    pod: dict[str, Any] = apply_patch(whole["request"]["object"], operations)
    return pod


def apply_patch(document: Any, operations: list[dict[str, Any]]) -> Any:
    """Return a document after operations of the kind `add`, the only ones that are made here. Raises KeyError or
    IndexError for a path that leads nowhere."""
    made = copy.deepcopy(document)
    for operation in operations:
        assert set(operation) == {"op", "path", "value"}
        assert operation["op"] == "add"
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"][1:].split("/"))
        there = made
        for part in parents:
            there = there[int(part)] if isinstance(there, list) else there[part]
        if isinstance(there, dict):
            there[last] = operation["value"]
        else:
            index = len(there) if last == "-" else int(last)
            if index > len(there):
                raise IndexError(operation["path"])
            there.insert(index, operation["value"])
    return made
