"""The webhook in the Helm chart: turned off, and where it is on, what Kubernetes is told agrees with what listens."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest
import yaml

from kproxy.admin.webhook import server
from kproxy.cli.run import webhook_command
from tests.support import manifests
from tests.support.helm import FOLDER, refused, rendered
from tests.support.manifests import named

pytestmark = pytest.mark.tools("helm")
VALUES: dict[str, Any] = yaml.safe_load((FOLDER / "values" / "webhook.yaml").read_text())


def with_webhook(*words: str, **values: Any) -> list[dict[str, Any]]:
    made = copy.deepcopy(VALUES)
    made["webhook"] |= values
    return rendered(*words, values=made)


def test_it_is_off_where_nobody_asks_for_it() -> None:
    kinds = {one["kind"] for one in rendered(values={"cluster": VALUES["cluster"]})}
    assert not kinds & {"Deployment", "MutatingWebhookConfiguration"}


def test_kubernetes_asks_where_it_listens() -> None:
    """By the service, at the path and the port; the command takes each argument, and the certificate is there."""
    objects = with_webhook()
    (deployment,), (configuration,) = named(objects, "Deployment"), named(objects, "MutatingWebhookConfiguration")
    (webhook,) = configuration["webhooks"]
    there = webhook["clientConfig"]["service"]
    (service,) = (one for one in named(objects, "Service") if one["metadata"]["name"] == there["name"])
    assert (there["namespace"], there["path"]) == ("shop", server.PATH)
    assert [there["port"]] == [port["port"] for port in service["spec"]["ports"]]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    name, *arguments = container["args"]
    options = dict(one.partition("=")[::2] for one in arguments)
    known = {text for one in webhook_command.params for text in one.opts}
    assert name == webhook_command.name and set(options) <= known
    assert options["--listen"] == f"0.0.0.0:{container['ports'][0]['containerPort']}"
    (mount,), (volume,) = container["volumeMounts"], deployment["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"] == {"secretName": "kproxy-webhook-tls"}
    assert {options["--cert"], options["--key"]} == {f"{mount['mountPath']}/tls.{end}" for end in ("crt", "key")}
    (stateful,) = named(objects, "StatefulSet")
    assert options["--image"] == stateful["spec"]["template"]["spec"]["containers"][0]["image"] == container["image"]


def test_only_the_api_server_asks_where_there_is_an_authority_for_it() -> None:
    """The file is there that the option names."""
    (deployment,) = named(with_webhook(clientCaSecret="api-server"), "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    mount = next(one for one in container["volumeMounts"] if one["name"] == "client-ca")
    assert f"--client-ca={mount['mountPath']}/ca.crt" in container["args"]
    assert {"name": "client-ca", "secret": {"secretName": "api-server"}} in spec["volumes"]


def test_it_fails_closed_for_annotated_pods_of_labelled_namespaces_only() -> None:
    """And never for those that it needs itself to start again; Kubernetes before 1.30 knows no conditions."""
    (configuration,) = named(with_webhook(), "MutatingWebhookConfiguration")
    (webhook,) = configuration["webhooks"]
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Fail", "None")
    assert webhook["namespaceSelector"] == {
        "matchLabels": {"kproxy.io/injection": "enabled"},
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["shop", "kube-system"]}
        ],
    }
    assert "kproxy.io/" in webhook["matchConditions"][0]["expression"]
    (older,) = named(with_webhook("--kube-version", "1.29.0"), "MutatingWebhookConfiguration")[0]["webhooks"]
    assert "matchConditions" not in older


def test_the_authority_is_told() -> None:
    """As the values give it, or by cert-manager."""
    (by_manager,) = named(with_webhook(), "MutatingWebhookConfiguration")
    assert by_manager["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "kafka-proxy/kproxy-webhook"}
    bundle = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()
    objects = with_webhook(certManager="", caBundle=bundle, failurePolicy="Ignore")
    manifests.follow_schema(named(objects, "MutatingWebhookConfiguration"))
    (webhook,) = named(objects, "MutatingWebhookConfiguration")[0]["webhooks"]
    assert (webhook["clientConfig"]["caBundle"], webhook["failurePolicy"]) == (bundle, "Ignore")


@pytest.mark.parametrize(
    ("webhook", "message"),
    [
        ({"certSecret": ""},
         "webhook.certSecret: required, a Secret with tls.crt and tls.key for kproxy-webhook.default.svc"),
        ({"certManager": ""}, "webhook.caBundle: required, the CA of the certificate"),
        ({"caBundle": "YQ=="}, "webhook.caBundle: expected either caBundle or certManager, got both"),
        ({"failurePolicy": "Maybe"}, "at '/webhook/failurePolicy': value must be one of 'Fail', 'Ignore'"),
        ({"timeoutSeconds": 31}, "at '/webhook/timeoutSeconds': maximum: got 31, want 30"),
    ],
)  # fmt: skip
def test_mistakes_are_told(webhook: dict[str, Any], message: str) -> None:
    """At their places."""
    assert message in refused({**VALUES, "webhook": {**VALUES["webhook"], **webhook}})
