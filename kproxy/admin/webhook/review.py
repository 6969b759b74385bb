"""AdmissionReview of admission.k8s.io/v1: its request is read, and its response made.

Who sends what is no AdmissionReview gets a refusal in the form of the admin API (`kproxy.admin.problem`), for which
Kubernetes does what `failurePolicy` says. All else gets a response with the request's uid: a pod that cannot have its
sidecar is one that is not allowed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kproxy.admin.operation import API, MOST_NESTED, MOST_VALUES, has_few_values
from kproxy.admin.problem import Problem
from kproxy.base.terminal import in_line
from kproxy.rules.values.model import found
from kproxy.rules.values.source import json_source, to_value, told

from .annotations import SidecarOptions, shown
from .injection import Injection, inject

VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
LONGEST_UID = 256
LONGEST_REASON = 4000
"""Characters of a refusal: Kubernetes shows it to whoever made the pod, and writes it into events."""


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """Request of an AdmissionReview, as far as it is used: about which object, and what is done with it."""

    uid: str
    operation: str
    kind: str
    subresource: str
    namespace: str
    name: str
    pod: Any


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """Answer to one AdmissionReview: the body of the response, and the outcome of which the log tells."""

    request: AdmissionRequest
    injection: Injection

    def body(self) -> dict[str, Any]:
        injection = self.injection
        response: dict[str, Any] = {"uid": self.request.uid, "allowed": not injection.reasons}
        if injection.reasons:
            message = "; ".join(injection.reasons)
            if len(message) > LONGEST_REASON:
                message = message[: LONGEST_REASON - 1] + "…"
            response["status"] = {"code": 422, "reason": "Invalid", "message": f"no kproxy sidecar: {message}"}
        if injection.patch:
            data = json.dumps(injection.patch, separators=(",", ":")).encode()
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(data).decode()}
        if injection.warnings:
            response["warnings"] = [f"kproxy: {one}" for one in injection.warnings]
        return {"apiVersion": VERSION, "kind": KIND, "response": response}


def answer_review(data: bytes, defaults: SidecarOptions) -> AdmissionAnswer:
    """Return the answer to the body of a request. Raises Problem for what is no AdmissionReview."""
    request = read_request(data)
    return AdmissionAnswer(request, decide(request, defaults))


def decide(request: AdmissionRequest, defaults: SidecarOptions) -> Injection:
    if request.kind != "v1 Pod" or request.subresource:
        what = f"{request.kind}{'/' if request.subresource else ''}{request.subresource}"
        reason = f"the webhook is for pods (v1 Pod), and was asked about {shown(what)}"
        return Injection(reasons=[f"{reason}: its MutatingWebhookConfiguration has other rules"])
    if request.operation != "CREATE":
        warning = f"a pod gets its sidecar when it is made; nothing was done at {shown(request.operation)}"
        return Injection(left="not a new pod", warnings=[warning])
    return inject(request.pod, defaults)


def read_request(data: bytes) -> AdmissionRequest:
    """Return the request of an AdmissionReview. Raises Problem with the places of all mistakes."""
    document = read_document(data)
    if not isinstance(document, dict):
        raise invalid([("", f"an {KIND} is a mapping, found {found(document)}")])
    mistakes: list[tuple[str, str]] = []
    for name, wanted in (("apiVersion", VERSION), ("kind", KIND)):
        if document.get(name) != wanted:
            mistakes.append((name, f'"{wanted}" is wanted, found {shown(document.get(name))}'))
    request = document.get("request")
    if not isinstance(request, dict):
        raise invalid([*mistakes, ("request", f"a mapping is wanted, found {shown(request)}")])
    texts = {
        name: text_of(request, name, mistakes) for name in ("uid", "operation", "subResource", "namespace", "name")
    }
    if not 0 < len(texts["uid"]) <= LONGEST_UID:
        mistakes.append(("request.uid", f"1 to {LONGEST_UID} characters are wanted, found {len(texts['uid'])}"))
    elif in_line(texts["uid"]) != texts["uid"]:  # it is sent back as it came, and half a character cannot be
        mistakes.append(("request.uid", f"characters that are seen are wanted, found {shown(texts['uid'])}"))
    kind = request.get("kind")
    if not isinstance(kind, dict):
        mistakes.append(("request.kind", f"a mapping is wanted, found {shown(kind)}"))
        kind = {}
    parts = [text_of(kind, name, mistakes, "request.kind.") for name in ("group", "version", "kind")]
    if mistakes:
        raise invalid(mistakes)
    group, version, name = parts
    pod = request.get("object")
    return AdmissionRequest(
        texts["uid"], texts["operation"], f"{group}{'/' if group else ''}{version} {name}", texts["subResource"],
        texts["namespace"], texts["name"] or name_of(pod), pod,
    )  # fmt: skip


def read_document(data: bytes) -> Any:
    """Return the values of a JSON document. Raises Problem with the line and column of each mistake."""
    if not has_few_values(data):
        message = f"more than {MOST_VALUES} values, or nested deeper than {MOST_NESTED} times"
        raise Problem(422, "invalid_body", message)
    source = json_source(API, data)
    document = to_value(source)
    if lines := told(source.lines(), source.untold):
        raise Problem(422, "invalid_document", f"the body is no {KIND}", lines)
    return document


def invalid(mistakes: list[tuple[str, str]]) -> Problem:
    """Return the refusal of a document that is JSON and no AdmissionReview."""
    return Problem(422, "invalid_body", f"the body is no {KIND} of {VERSION}", mistakes)


def text_of(part: Mapping[Any, Any], name: str, mistakes: list[tuple[str, str]], before: str = "request.") -> str:
    """Return the text under a name, "" where there is none; another type is added to the mistakes."""
    value = part.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        mistakes.append((f"{before}{name}", f"text is wanted, found {shown(value)}"))
        return ""
    return value


def name_of(pod: Any) -> str:
    """Return the name of a pod that gets its own only later: the beginning that its owner gives, and a star."""
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    beginning = metadata.get("generateName") if isinstance(metadata, dict) else None
    return f"{beginning}*" if isinstance(beginning, str) else ""
