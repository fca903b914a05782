"""What is wrong with a manifest by Kubernetes' own schemas, and short words for its parts."""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from tests.unit.deploy.helm import Manifest

SCHEMAS = Path(__file__).parent / "schemas"
WORKLOADS = ("Deployment", "StatefulSet")


@cache
def _validators() -> dict[str, Draft202012Validator]:
    validators = {}
    for path in sorted(SCHEMAS.glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        for kind, name in schema["kinds"].items():
            ref = {"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]}
            validators[kind] = Draft202012Validator(ref)
    return validators


def complaints(manifest: Manifest) -> list[str]:
    """Empty for a manifest that the API server takes, as far as its schema says."""
    kind = f"{manifest.get('apiVersion')}/{manifest.get('kind')}"
    if kind not in _validators():
        return [f"no schema of {kind}"]
    return [f"{kind} {error.json_path}: {error.message[:200]}" for error in _validators()[kind].iter_errors(manifest)]


def of_kind(manifests: Iterable[Manifest], *kinds: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def named(manifests: Iterable[Manifest], kind: str, name: str) -> Manifest:
    (found,) = (each for each in of_kind(manifests, kind) if each["metadata"]["name"] == name)
    return found


def pods(manifests: Iterable[Manifest]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, template) of each workload's pods."""
    for manifest in of_kind(manifests, *WORKLOADS):
        yield manifest["metadata"]["name"], manifest["spec"]["template"]


def containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    """Also those that come first."""
    spec = template["spec"]
    return [*spec.get("initContainers", ()), *spec["containers"]]


def environment(container: dict[str, Any]) -> dict[str, Any]:
    """Variable → its value, or where that comes from."""
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container.get("env", ())}
