"""Who may reach whom, and who is given which secret: what the code knows of, and nothing more."""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.broker_config import nats_config, valkey_config, valkey_on_port
from deploy.chart_files import index_users
from deploy.local.options import SERVICES
from deploy.secrets import draw
from libs.contracts import flow
from tests.unit.deploy.helm import CHART, Manifest, render
from tests.unit.deploy.manifests import containers, environment, named, of_kind, pods

Edge = tuple[str, str]
COMPONENT = "app.kubernetes.io/component"
NATS, VALKEY, CLIENT, NAMES = "nats", "valkey", "client", "names"
PORTS = {"http": "gateway", 4222: NATS, 6379: VALKEY, 7400: "scheduler"}
POD_OF = {"prefill_worker": "worker", "decode_worker": "worker"}
DNS_PORT = 53
ENTRY_SUFFIX = "_FILE"
SECRETS = "/run/secrets/"


def pod_of(span: str) -> str:
    service = span.partition(".")[0]
    return POD_OF.get(service, service)


def expected() -> set[Edge]:
    """A hop over a broker is two connections to it; the worker dials the scheduler; the index has its users."""
    edges = {(user, VALKEY) for user in index_users() if user in SERVICES}
    for hop in flow.HOPS:
        if hop.over.startswith("HTTP"):
            edges.add((CLIENT, pod_of(hop.span)))
        elif hop.over.startswith("gRPC"):
            edges.add((pod_of(hop.span), pod_of(hop.parent or "")))
        else:
            edges |= {(pod_of(hop.parent or ""), NATS), (pod_of(hop.span), NATS)}
    return edges


def policies(manifests: tuple[Manifest, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in of_kind(manifests, "NetworkPolicy"):
        labels = manifest["spec"]["podSelector"]["matchLabels"]
        if COMPONENT in labels:
            yield labels[COMPONENT], manifest["spec"]


def peers(rule: Mapping[str, Any], key: str) -> list[str]:
    """Components of the pods at the other side; none where it is anybody."""
    return [each["podSelector"]["matchLabels"][COMPONENT] for each in rule.get(key, ()) if "podSelector" in each]


def ingress(manifests: tuple[Manifest, ...]) -> set[Edge]:
    found = set[Edge]()
    for component, spec in policies(manifests):
        for rule in spec["ingress"]:
            assert {PORTS[port["port"]] for port in rule["ports"]} == {component}
            found |= {(talker, component) for talker in peers(rule, "from") or [CLIENT]}
    return found


def egress(manifests: tuple[Manifest, ...]) -> set[Edge]:
    found = set[Edge]()
    for component, spec in policies(manifests):
        for rule in spec["egress"]:
            numbers = [port["port"] for port in rule["ports"]]
            found |= {(component, heard) for heard in peers(rule, "to") or map(str, numbers)}
    return found


def test_pods_reach_what_the_flow_says_and_nothing_else() -> None:
    """Both ends agree; names are looked up; everything else is refused for every pod of the release."""
    manifests = render()
    assert ingress(manifests) == expected()
    talking = {edge for edge in expected() if edge[0] != CLIENT}
    assert egress(manifests) == talking | {(talker, str(DNS_PORT)) for talker, _ in talking}
    nobody = named(manifests, "NetworkPolicy", "headrace-nobody")["spec"]
    assert nobody["policyTypes"] == ["Ingress", "Egress"] and not {"ingress", "egress"} & nobody.keys()
    for _, template in pods(manifests):
        assert nobody["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert template["metadata"]["labels"][COMPONENT] in dict(policies(manifests))


def test_a_collector_and_brokers_elsewhere_are_reached_by_their_ports() -> None:
    """And brokers of the chart's are then not there."""
    values = {"nats": {"url": "nats://n.other:4333"}, "valkey": {"url": "rediss://v.other:6380"}}
    manifests = render({**values, "settings": {"otlp_endpoint": "http://collector.other:4318"}})
    left = egress(manifests)
    assert {("gateway", "4333"), ("gateway", "4318"), ("tokenizer", "6380"), ("worker", "scheduler")} <= left
    assert not {NATS, VALKEY} & {component for component, _ in policies(manifests)}
    assert not [name for name, _ in pods(manifests) if name.endswith((NATS, VALKEY))]


def test_clients_can_be_chosen() -> None:
    """Nobody else then reaches the door."""
    chosen = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "apps"}}}
    spec = dict(policies(render({"networkPolicy": {"clients": [chosen]}})))["gateway"]
    assert [rule["from"] for rule in spec["ingress"]] == [[chosen]]


@pytest.mark.parametrize("values", [None, CHART / "values" / "observability.yaml"], ids=["default", "observability"])
def test_the_drawn_secret_is_what_the_code_would_draw(values: Path | None) -> None:
    """The same entries; the brokers' files have its passwords, with the subjects and commands that the code allows."""
    (secret,) = of_kind(render(values), "Secret")
    entries = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    assert draw().keys() == entries.keys() - {"otlp_sample_key"}
    assert len(set(entries.values())) == len(entries) and min(map(len, entries.values())) >= 32
    bytes.fromhex(entries["hash_key"])
    users = {user: entries[f"nats_{user}"] for user in flow.PERMISSIONS}
    assert json.loads(entries["nats.conf"]) == json.loads(nats_config("0.0.0.0:4222", Path("/store"), users))
    assert "\\u" not in entries["nats.conf"]  # which NATS would not read
    index = {user: entries[f"index_{user}"] for user in index_users()}
    assert entries["valkey.conf"] == valkey_config(valkey_on_port(6379), Path("/tmp"), index)


def test_a_secret_of_ones_own_takes_its_place() -> None:
    """Nothing is drawn, and everybody mounts that one."""
    manifests = render({"secrets": {"existing": "mine"}})
    assert of_kind(manifests, "Secret") == []
    for _, template in pods(manifests):
        assert secret_volume(template)["secretName"] == "mine"


def secret_volume(template: dict[str, Any]) -> dict[str, Any]:
    (found,) = (each["secret"] for each in template["spec"]["volumes"] if each["name"] == "secrets")
    return dict(found)


def test_a_pod_has_the_secrets_that_it_reads_and_no_others() -> None:
    """As files; none is a variable."""
    read_by_images = {"nats": {"nats.conf"}, "valkey": {"valkey.conf", "index_supervisor"}}
    for name, template in pods(render({"gateway": {"traceKey": True}})):
        mounted = {item["key"] for item in secret_volume(template)["items"]}
        assert all(item["key"] == item["path"] for item in secret_volume(template)["items"])
        variables = [item for container in containers(template) for item in environment(container).items()]
        read = {value.removeprefix(SECRETS) for variable, value in variables if str(value).startswith(SECRETS)}
        assert all(variable.endswith(ENTRY_SUFFIX) for variable, value in variables if str(value).startswith(SECRETS))
        assert mounted == read_by_images.get(name.removeprefix("headrace-"), read), name
        assert "secretKeyRef" not in json.dumps(template) and "envFrom" not in json.dumps(template)
