"""Every value of the chart does something, and every setting of every service can be reached through it."""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import Any

import pytest
import yaml

from deploy.chart_files import CHART_SETS, COMMON, CONFIGS, settings_schema
from libs.runtime.config import FILE_SUFFIX, ServiceConfig, load_config
from tests.unit.deploy.everything import EVERYTHING
from tests.unit.deploy.helm import CHART, RELEASE, Manifest, helm, render
from tests.unit.deploy.manifests import containers, environment, pods

Path_ = tuple[str, ...]
NEVER_SET = {"incarnation"}  # one name for all lives of a container would be wrong: each draws its own
VALUES_KEY = {"prefill_worker": "prefillWorker", "decode_worker": "decodeWorker"}
KINDS = ("none", "cpu", "keda")
LARGE = ("port", "grpcPort", "linkPort", "memoryMiB", "waiting", "maxModelLen", "blocks")  # numbers of any five digits
OPEN = ("settings", "digests")  # empty until something is said there
SECRET_FILES = tuple(f"{secret}{FILE_SUFFIX}" for secret in ("_PASSWORD", "_TOKEN", "_KEY"))
OTHER: dict[Path_, Any] = {  # for values of which no other can be made up
    ("images", "digests"): {"gateway": "sha256:" + "1" * 64},
    ("images", "pullSecrets"): ["another"],
    ("images", "pullPolicy"): "Always",
    ("models",): {"more": {"name": "m", "path": "m", "maxModelLen": 2}},
    ("secrets", "existing"): "mine",
    ("gateway", "service", "type"): "NodePort",
    ("cells",): {"third": {}},
    ("cellDefaults", "model"): "small",
    ("cellDefaults", "dtype"): "int8",
    ("cellDefaults", "blockTokens"): 32,
    ("cellDefaults", "kernels"): "portable",
    ("cellDefaults", "nodeSelector"): {"c": "d"},
    ("cellDefaults", "tolerations"): [],
    ("nats", "url"): "nats://elsewhere:4333",
    ("valkey", "url"): "redis://elsewhere:6380",
    ("autoscaling", "kind"): "cpu",
    ("autoscaling", "prometheus"): "http://elsewhere",
    ("networkPolicy", "clients"): [],
    ("monitoring", "interval"): "7s",
}
QUANTITY = re.compile(r"\d+(m|Mi|Gi)?")


def defaults() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return read


def leaves(values: Mapping[str, Any], schema: Mapping[str, Any], path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """(path, value) of all that can be said but settings; what has no fixed names below it is one value."""
    for name, value in values.items():
        if name == "settings":  # another test says all of them
            continue
        below = _resolve(schema["properties"][name])
        if isinstance(value, dict) and "properties" in below and name not in OPEN:
            yield from leaves(value, below, (*path, name))
        elif isinstance(value, dict) and value and path[-1:] == ("resources",):
            yield from (((*path, name, each), amount) for each, amount in value.items())
        else:
            yield (*path, name), value


@cache
def schema() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    return read


def _resolve(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema()["$defs"][spec["$ref"].rsplit("/", 1)[1]] if "$ref" in spec else spec
    return found


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(result.get(name), dict)
            result[name] = merged(result[name], value) if both else copy.deepcopy(value)
    return result


def at(path: Path_, value: Any) -> dict[str, Any]:
    for name in reversed(path):
        value = {name: value}
    return dict(value)


def is_markable(path: Path_, value: Any) -> bool:
    """Of such values any will do, so that each can be looked for in what is rendered."""
    return path not in OTHER and (isinstance(value, str) or path[-1] in LARGE)


def marked(value: str | int, mark: int) -> str | int:
    if isinstance(value, int):
        return mark
    quantity = QUANTITY.fullmatch(value)
    return f"{mark}{quantity[1] or ''}" if quantity else f"{value}{mark}"


def another(path: Path_, value: Any) -> Any:
    """A value that is not the one of EVERYTHING."""
    if path in OTHER:
        return OTHER[path]
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value / 2


@cache
def rendered(values: str) -> str:
    """The text, without secrets: they are drawn anew each time."""
    done = helm("template", RELEASE, str(CHART), values=json.loads(values))
    assert done.returncode == 0, done.stderr
    return "".join(each for each in done.stdout.split("\n---\n") if "\nkind: Secret\n" not in each)


def test_values_and_schema_are_about_the_same() -> None:
    """Each has a default and a type; a settings block is the exception, whose defaults are the services'."""

    def differing(values: Mapping[str, Any], spec: Mapping[str, Any], path: str) -> Iterator[str]:
        properties = spec.get("properties", {})
        yield from (f"{path}{name}" for name in properties.keys() ^ values.keys())
        for name in properties.keys() & values.keys():
            below = _resolve(properties[name])
            if isinstance(values[name], dict) and "properties" in below and name not in OPEN:
                yield from differing(values[name], below, f"{path}{name}.")

    assert list(differing(defaults(), schema(), "")) == []


def is_used(path: Path_, value: Any) -> bool:
    """Whether another value changes what is rendered, under some kind of autoscaling."""
    other = at(path, another(path, value))
    for kind in reversed(KINDS):
        base = merged(EVERYTHING, {"autoscaling": {"kind": kind}})
        if rendered(json.dumps(base)) != rendered(json.dumps(merged(base, other))):
            return True
    return False


def test_every_text_and_large_number_is_rendered() -> None:
    """Each of them, marked, is found again."""
    known = merged(defaults(), EVERYTHING, {"autoscaling": {"kind": "keda"}})
    texts = [(path, value) for path, value in leaves(known, schema()) if is_markable(path, value)]
    marks = {path: 10_000 + number for number, (path, _) in enumerate(texts)}
    values = merged(known, *(at(path, marked(value, marks[path])) for path, value in texts))
    output = rendered(json.dumps(values))
    assert len(texts) > 30
    assert [".".join(path) for path, mark in marks.items() if str(mark) not in output] == []


def test_every_other_value_is_used() -> None:
    """Whatever is said instead changes something."""
    known = [each for each in leaves(merged(defaults(), EVERYTHING), schema()) if not is_markable(*each)]
    with ThreadPoolExecutor(2) as several:
        used = list(several.map(is_used, *zip(*known, strict=True)))
    assert len(known) > 25
    assert [".".join(path) for (path, _), is_ in zip(known, used, strict=True) if not is_] == []


def told(manifests: tuple[Manifest, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """(service, its variables as its process sees them) of every container of ours."""
    for _, template in pods(manifests):
        for container in containers(template):
            service = re.sub(r"-\d+$", "", container["name"]).replace("-", "_")
            if service in CONFIGS:
                yield service, expanded(environment(container))


def expanded(variables: Mapping[str, Any]) -> dict[str, str]:
    """As the kubelet has them: $(NAME) is another's value, and what a pod only knows there is some address."""
    env = {name: value if isinstance(value, str) else "10.0.0.1" for name, value in variables.items()}
    return {name: re.sub(r"\$\((\w+)\)", lambda match: env[match[1]], value) for name, value in env.items()}


def sample(name: str, spec: Mapping[str, Any]) -> Any:
    """Some value of a setting's type; texts of different settings differ."""
    if "anyOf" in spec:
        return sample(name, spec["anyOf"][0])
    if "enum" in spec:
        return spec["enum"][-1]
    if spec["type"] == "object":
        return {field: sample(f"{name}-{field}", below) for field, below in spec["properties"].items()}
    if spec["type"] == "array":
        return [sample(name, spec["items"])]
    numbers = {
        "integer": int(spec.get("minimum", 1)),
        "number": spec.get("minimum", spec.get("exclusiveMinimum", 0) + 0.5),
    }
    return {**numbers, "boolean": False, "string": spec.get("examples", [name])[0]}[spec["type"]]


def in_plain(variables: Mapping[str, str]) -> dict[str, str]:
    """As if secrets were in variables and not in files; only what services read."""
    return {
        name.removesuffix(FILE_SUFFIX) if name.endswith(SECRET_FILES) else name: (
            "00ff" if name.endswith(SECRET_FILES) else value
        )
        for name, value in variables.items()
        if name.startswith("HR_")
    }


@pytest.mark.parametrize("service", CONFIGS)
def test_every_setting_can_be_reached(service: str) -> None:
    """By a value of the chart or as one of `settings`; and each service reads what it is told."""
    said = {field: sample(field, spec) for field, spec in settings_schema(service)["properties"].items()}
    values = merged(EVERYTHING, {VALUES_KEY.get(service, service): {"settings": said}})
    config: type[ServiceConfig] = import_module(CONFIGS[service]).Config
    prefix = f"HR_{service}_".upper()
    variables = [in_plain(variables) for name, variables in told(render(values)) if name == service]

    reads = [load_config(config, prefix=prefix, environ=each) for each in variables]

    plain = {name: value for name, value in said.items() if isinstance(value, str | bool)}
    for read in reads:
        assert [name for name, value in plain.items() if str(value) != str(getattr(read, name))] == []
    fields = {name.removeprefix(prefix).lower() for each in variables for name in each}
    assert set(config.model_fields) - fields == NEVER_SET & set(config.model_fields)


def test_what_the_chart_sets_are_settings_that_there_are() -> None:
    """One that is renamed leaves no trace."""
    for service, fields in CHART_SETS.items():
        config = ServiceConfig if service == COMMON else import_module(CONFIGS[service]).Config
        assert fields <= set(config.model_fields), service


def test_a_service_goes_by_its_own_settings_before_those_of_all() -> None:
    """As the tables in README.md say: whole numbers stay whole, and truth is a word."""
    values = {
        "settings": {"log_level": "debug"},
        "scheduler": {"settings": {"log_level": "error", "prefix_caching": False, "max_waiting": 4194304}},
    }
    levels = {(service, variables[f"HR_{service}_LOG_LEVEL".upper()]) for service, variables in told(render(values))}
    assert ("scheduler", "error") in levels and ("gateway", "debug") in levels
    scheduler = next(variables for service, variables in told(render(values)) if service == "scheduler")
    assert scheduler["HR_SCHEDULER_MAX_WAITING"] == "4194304" and scheduler["HR_SCHEDULER_PREFIX_CACHING"] == "false"
