"""The chart says what Kubernetes takes, uses all it is told, and lets nobody do more than the code knows of."""

import json
import re
from typing import Any

import pytest
import yaml

from deploy.chart_files import texts
from tests.unit.deploy.everything import EVERYTHING
from tests.unit.deploy.helm import CHART, ROOT, Manifest, helm, refusal, render
from tests.unit.deploy.manifests import complaints, containers, environment, named, of_kind, pods

PROFILES = [None, *sorted((CHART / "values").glob("*.yaml"))]
ALL = {"everything": EVERYTHING, "cpu": {"autoscaling": {"kind": "cpu"}}, "keda": {"autoscaling": {"kind": "keda"}}}
IDS = [*(path.stem if path else "default" for path in PROFILES), *ALL]
UID = 10001
MIB = {"Mi": 1, "Gi": 1024}


@pytest.fixture(scope="module", params=[*PROFILES, *ALL.values()], ids=IDS)
def manifests(request: pytest.FixtureRequest) -> tuple[Manifest, ...]:
    return render(request.param)


def test_every_manifest_is_one_of_kubernetes(manifests: tuple[Manifest, ...]) -> None:
    """By its own schemas, which refuse what they do not know; and none is there twice."""
    assert [each for manifest in manifests for each in complaints(manifest)] == []
    names = [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert len(set(names)) == len(names) > 15


def test_lint_has_nothing_to_say() -> None:
    """With each of the values that are shown."""
    for values in PROFILES:
        done = helm("lint", "--strict", "--quiet", str(CHART), values=values)
        assert done.returncode == 0, done.stdout


def test_nobody_has_rights(manifests: tuple[Manifest, ...]) -> None:
    """No root, no capability, no writable root, no token of the cluster, no variables about other services."""
    for name, template in pods(manifests):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False, name
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True and context["runAsUser"] == UID, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        for container in containers(template):
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False and security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]} and "privileged" not in security


def test_every_container_is_watched_and_bounded(manifests: tuple[Manifest, ...]) -> None:
    """Its memory has a limit, its life and readiness are asked for; what runs once is only bounded."""
    for name, template in pods(manifests):
        for container in containers(template):
            assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"], name
            if container["name"] != "model":
                assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys(), container["name"]


def test_volumes_are_those_that_are_mounted(manifests: tuple[Manifest, ...]) -> None:
    """Each mount has a volume, and each volume a mount; names of ports and claims lead somewhere."""
    for name, template in pods(manifests):
        spec = template["spec"]
        claimed = next(
            each for each in of_kind(manifests, "Deployment", "StatefulSet") if each["metadata"]["name"] == name
        )
        volumes = {
            each["name"]
            for each in [
                *spec["volumes"],
                *({"name": claim["metadata"]["name"]} for claim in claimed["spec"].get("volumeClaimTemplates", ())),
            ]
        }
        mounted = {mount["name"] for container in containers(template) for mount in container["volumeMounts"]}
        assert volumes == mounted, name


def test_selectors_find_their_pods(manifests: tuple[Manifest, ...]) -> None:
    """Of services, budgets, policies and scrapes; each workload's pods carry its labels and no other's."""
    labels = [template["metadata"]["labels"] for _, template in pods(manifests)]
    for manifest in manifests:
        spec = manifest.get("spec", {})
        selector = spec.get("podSelector", spec.get("selector", {}))
        wanted = selector.get("matchLabels", selector if manifest["kind"] == "Service" else {})
        if wanted and manifest["kind"] != "ServiceMonitor":
            found = [each for each in labels if wanted.items() <= each.items()]
            assert found, manifest["metadata"]["name"]
            assert manifest["kind"] not in ("Deployment", "StatefulSet") or len(found) == 1


def test_nobody_is_cut_off_while_it_drains(manifests: tuple[Manifest, ...]) -> None:
    """Kubernetes waits longer than the service, and what it waits before it tells it."""
    for name, template in pods(manifests):
        grace_s = template["spec"].get("terminationGracePeriodSeconds", 30)
        for container in containers(template):
            before_s = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            drains = [each["value"] for each in container.get("env", ()) if each["name"].endswith("_DRAIN_S")]
            assert all(before_s + float(drain_s) + 5 < grace_s for drain_s in drains), name


def test_a_cell_is_a_scheduler_with_a_standby_and_one_pod_of_workers() -> None:
    """They find each other by the index of their pods; the pool is memory that its workers share."""
    manifests = render({"cells": {"c": {"count": 2}, "big": {"prefill": 2, "decode": 3}}})
    for group, count in (("c", 2), ("big", 1)):
        for kind in ("scheduler", "standby", "workers"):
            assert named(manifests, "StatefulSet", f"headrace-{kind}-{group}")["spec"]["replicas"] == count
    pod = named(manifests, "StatefulSet", "headrace-workers-big")["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["containers"]] == [
        "prefill-worker-0",
        "prefill-worker-1",
        "decode-worker-0",
        "decode-worker-1",
        "decode-worker-2",
    ]
    pool = pod["initContainers"][-1]
    assert (pool["name"], pool["restartPolicy"]) == ("pool", "Always")
    (volume,) = (each for each in pod["volumes"] if each["name"] == "pool")
    assert volume["emptyDir"]["medium"] == "Memory"
    assert _mib(pool["resources"]["limits"]["memory"]) > _mib(volume["emptyDir"]["sizeLimit"])
    sharing = [
        each["name"]
        for each in containers({"spec": pod})
        if {"name": "pool", "mountPath": "/pool"} in each["volumeMounts"]
    ]
    assert len(sharing) == 6


def test_models_stand_behind_the_same_gateways() -> None:
    """Each with tokenizers and cells of its own; gateways know all of them, by every name."""
    manifests = render(CHART / "values" / "two-models.yaml")
    (door,) = named(manifests, "Deployment", "headrace-gateway")["spec"]["template"]["spec"]["containers"]
    env = environment(door)
    assert (env["HR_GATEWAY_MODEL"], env["HR_GATEWAY_ALIASES"]) == ("SmolLM2-135M-Instruct", "")
    assert json.loads(env["HR_GATEWAY_MORE_MODELS"]) == [
        {
            "model": "mistral-7b-instruct",
            "model_dir": "/models/mistral-7b-instruct",
            "max_model_len": 32768,
            "aliases": ["mistral"],
        }
    ]
    served = {
        name: {
            value for each in containers(template) for key, value in environment(each).items() if key[-6:] == "_MODEL"
        }
        for name, template in pods(manifests)
    }
    for name in ("tokenizer-default", "scheduler-c", "standby-c", "workers-c"):
        assert served[f"headrace-{name}"] == {"SmolLM2-135M-Instruct"}
    for name in ("tokenizer-mistral", "scheduler-m", "standby-m", "workers-m"):
        assert served[f"headrace-{name}"] == {"mistral-7b-instruct"}


def test_workers_of_a_pod_share_one_claim_of_a_gpu() -> None:
    """The hand-over between them copies nothing only where both see the same memory."""
    manifests = render(CHART / "values" / "gpu.yaml")
    pod = named(manifests, "StatefulSet", "headrace-workers-c")["spec"]["template"]["spec"]
    (claim,) = pod["resourceClaims"]
    template = named(manifests, "ResourceClaimTemplate", claim["resourceClaimTemplateName"])
    assert template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.nvidia.com"
    assert all(each["resources"]["claims"] == [{"name": claim["name"]}] for each in pod["containers"])


def test_a_cell_is_added_by_load_and_removed_by_a_person() -> None:
    """Its queue and its blocks would go with it."""
    scaled = {
        each["spec"]["scaleTargetRef"]["name"]: each["spec"]
        for each in of_kind(render(CHART / "values" / "observability.yaml"), "ScaledObject")
    }
    assert scaled.keys() == {
        f"headrace-{name}" for name in ("gateway", "tokenizer-default", "workers-c", "scheduler-c", "standby-c")
    }
    for name in ("headrace-workers-c", "headrace-scheduler-c", "headrace-standby-c"):
        behavior = scaled[name]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert behavior["scaleDown"] == {"selectPolicy": "Disabled"}
        assert scaled[name]["triggers"] == scaled["headrace-workers-c"]["triggers"]
        assert scaled[name]["maxReplicaCount"] == 4


def test_values_in_the_docs_are_taken() -> None:
    """As they stand there."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        assert render(yaml.safe_load(block))


def test_what_the_chart_repeats_of_the_code_is_as_the_code_says() -> None:
    """`python -m deploy.chart_files` writes it anew."""
    assert [str(path) for path, text in texts().items() if path.read_text(encoding="utf-8") != text] == []


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"gatway": {}}, "gatway"),
        ({"gateway": {"settings": {"max_waitin": 3}}}, "max_waitin"),
        ({"gateway": {"settings": {"max_waiting": 0}}}, "minimum"),
        ({"gateway": {"settings": {"port": 1}}}, "port"),
        ({"scheduler": {"settings": {"role": "both"}}}, "role"),
        ({"cells": {"c0": {}}}, "c0"),
        ({"cells": {"c": {"decode": 0}}}, "minimum"),
        ({"cells": {"c": {"model": "other"}}}, "cells.c.model: there is no other in models"),
        ({"models": {"more": {"name": "m"}}}, "maxModelLen"),
        ({"images": {"digests": {"gateway": "latest"}}}, "gateway"),
        ({"monitoring": {"dashboards": "yes"}}, "boolean"),
    ],
)
def test_values_that_mean_nothing_are_refused(values: dict[str, Any], complaint: str) -> None:
    """Before anything reaches a cluster, by the name of the value."""
    assert complaint in refusal(values)


@pytest.mark.parametrize(
    ("path", "planted", "complaint"),
    [
        (("spec", "template", "spec", "containers", 0, "imagePullPolcy"), "Always", "imagePullPolcy"),
        (("spec", "replicas"), "two", "two"),
        (("spec", "selector"), None, "None"),
        (("kind",), "Deploymen", "no schema"),
    ],
)
def test_planted_errors_in_manifests_are_complained_about(path: tuple[Any, ...], planted: Any, complaint: str) -> None:
    """The check would not be one if it took anything."""
    manifest: Any = json.loads(json.dumps(named(render(), "Deployment", "headrace-gateway")))
    node = manifest
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = planted
    assert complaint in "; ".join(complaints(manifest))


def _mib(quantity: str) -> int:
    return int(quantity[:-2]) * MIB[quantity[-2:]]
