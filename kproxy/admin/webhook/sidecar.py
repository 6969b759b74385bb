"""Container of the sidecar, with its volumes and the time that a pod needs to end, as `SidecarOptions` ask for them.

They say what the Kustomize component in `deploy/kustomize/sidecar` says; tests/admin/webhook compares both.
"""

from __future__ import annotations

from typing import Any

from .annotations import SidecarOptions

NAME = "kproxy"
USER = 10001
"""User and group of kproxy's image."""
GRACE = 45
"""Seconds for a pod to end: limits.drain_timeout of kproxy is 30, and the audit's last lines take some."""
PAUSE = 5
"""Seconds that a container beside the application goes on when the pod ends: both are told at the same moment, and the
application's last requests need it. A native sidecar is told after the application has ended."""
LIVE: dict[str, Any] = {"exec": {"command": [NAME, "ready", "--live"]}}
"""The admin address is loopback, which the kubelet cannot reach: probes run in the container."""


def container(options: SidecarOptions) -> dict[str, Any]:
    """Return the container. A native sidecar is for `initContainers`, any other for `containers`."""
    made: dict[str, Any] = {
        "name": NAME,
        "image": options.image,
        "args": ["run", "--config", "/etc/kproxy/kproxy.yaml"],
        "startupProbe": {**LIVE, "periodSeconds": 2, "failureThreshold": 30, "timeoutSeconds": 5},
        "livenessProbe": {**LIVE, "periodSeconds": 20, "timeoutSeconds": 5},
        "resources": {"requests": dict(options.requests), "limits": dict(options.limits)},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": mounts(options),
    }
    if variables := environment(options):
        made["env"] = variables
    if options.native:
        made["restartPolicy"] = "Always"
    else:
        made["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", str(PAUSE)]}}}
    return made


def environment(options: SidecarOptions) -> list[dict[str, Any]]:
    """Return the variables: those from Secrets, and the pod's name where files carry it."""
    made: list[dict[str, Any]] = []
    if options.files is not None:
        made.append({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    for name, (secret, key) in options.secret_env.items():
        made.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    return made


def mounts(options: SidecarOptions) -> list[dict[str, Any]]:
    """Return where the volumes are in the container."""
    made: list[dict[str, Any]] = [{"name": "kproxy-config", "mountPath": "/etc/kproxy", "readOnly": True}]
    made += [
        {"name": f"kproxy-secret-{folder}", "mountPath": f"/etc/kproxy-secrets/{folder}", "readOnly": True}
        for folder in options.secrets
    ]
    if options.files is not None:
        made.append({"name": "kproxy-files", "mountPath": "/var/lib/kproxy"})
    return made


def volumes(options: SidecarOptions) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"name": "kproxy-config", "configMap": {"name": options.config_map}}]
    for folder, secret in options.secrets.items():
        made.append({"name": f"kproxy-secret-{folder}", "secret": {"secretName": secret}})
    if options.files is not None:
        made.append({"name": "kproxy-files", "emptyDir": {"sizeLimit": options.files}})
    return made


def grace(options: SidecarOptions) -> int:
    """Return the seconds that the pod needs to end."""
    return GRACE if options.native else GRACE + PAUSE
