"""Dashboards and alert rules ask for what the services tell, in words that Prometheus and Grafana take."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from libs.runtime.metrics import ProcessFacts, expose, process_metrics
from libs.runtime.ring import Ring
from libs.runtime.telemetry import Export
from services.gateway.metrics import FINISHED_REASONS
from services.gateway.metrics import Metrics as GatewayMetrics
from services.scheduler.metrics import Metrics as SchedulerMetrics
from tests.unit.deploy.promql import Labels, Values, complaints
from tests.unit.scheduler.cell import hybrid

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "observability"
DASHBOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
ALERTS = FOLDER / "alerts" / "headrace.yaml"
GRID_COLUMNS = 24
DURATION = re.compile(r"\d+[smhd]")
QUERY = re.compile(r"label_values\((\S+), (\w+)\)")
SEVERITIES = {"critical", "warning", "info"}
LABEL_IN_TEXT = re.compile(r"\$labels\.(\w+)")


@cache
def told() -> Labels:
    """Every series of a gateway, a scheduler and a worker, with its labels."""
    cell = hybrid()
    cell.state.counts["worker_lost"] = 1
    registries = (
        GatewayMetrics("m").registry,
        SchedulerMetrics(cell.state).registry,
        process_metrics(ProcessFacts("tokenizer", "tokenizer-0", Ring(), Export(), bus={"slow_consumer": 1})),
    )
    labels = dict[str, set[str]]()
    for registry in registries:
        for family in text_string_to_metric_families(expose(registry, openmetrics=False)):
            for sample in family.samples:
                labels.setdefault(sample.name, set()).update(sample.labels)
    return {name: frozenset(names) for name, names in labels.items()}


@cache
def values() -> Values:
    """Of labels that take a few values: events are what some part counts."""
    sources = [path for top in ("services", "libs") for path in (ROOT / top).rglob("*.py")]
    events = {event for path in sources for event in re.findall(r'counts\["(\w+)"\]', path.read_text(encoding="utf-8"))}
    return {"event": frozenset(events), "finished_reason": frozenset(FINISHED_REASONS)}


def dashboard(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


def expressions(board: dict[str, Any]) -> Iterator[str]:
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_ask_for_what_is_told(path: Path) -> None:
    """Each panel's expression, and each variable's."""
    board = dashboard(path)
    asked = list(expressions(board))
    queries = [each["definition"] for each in board["templating"]["list"] if each["type"] == "query"]
    found = [each for expression in asked for each in complaints(expression, told(), values())]
    for query in queries:
        name, label = QUERY.fullmatch(query).groups()  # type: ignore[union-attr]
        found += [] if label in told().get(name, ()) else [f"nobody tells {query}"]
    assert len(asked) > 3 and found == []


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_variables_in_expressions_are_those_of_the_dashboard(path: Path) -> None:
    """A misspelt one would be sent as it stands."""
    board = dashboard(path)
    known = {each["name"] for each in board["templating"]["list"]} | {"__rate_interval"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board)))
    assert used - {"__all"} <= known


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_lie_side_by_side(path: Path) -> None:
    """None is on another or beyond the edge, and each has a number and a query of its own."""
    panels = dashboard(path)["panels"]
    taken = set[tuple[int, int]]()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= GRID_COLUMNS and not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["targets"], panel["title"]
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_dashboards_can_be_told_apart() -> None:
    """Provisioning goes by uid."""
    boards = [dashboard(path) for path in DASHBOARDS]
    assert len(boards) == 3
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == 3


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alerts_ask_for_what_is_told(rule: dict[str, Any]) -> None:
    """And say what they found, by labels that their series keep."""
    assert complaints(rule["expr"], told(), values()) == []
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert DURATION.fullmatch(rule.get("for", "1m"))
    assert rule["labels"]["severity"] in SEVERITIES
    assert set(rule["annotations"]) == {"summary", "description"}
    named = LABEL_IN_TEXT.findall(rule["annotations"]["summary"])
    assert [label for label in named if not re.search(rf"by \([^)]*\b{label}\b", rule["expr"])] == []


def test_alerts_have_names_of_their_own_that_the_docs_explain() -> None:
    """Whoever is woken up finds what to do."""
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) >= 10
    explained = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in explained] == []


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("sum(vllm:num_requests_runing)", "nobody tells vllm:num_requests_runing"),
        ("vllm:num_requests_running{modell='x'}", "has no label modell"),
        ("sum by (cell) (vllm:num_requests_running)", "no cell to group by"),
        ('headrace:scheduler_events_total{event="worker_lots"}', "event is never worker_lots"),
        ("rate(vllm:num_requests_running)", "expected type matrix"),
        ("sum(vllm:num_requests_running", "unclosed"),
    ],
)
def test_planted_errors_are_complained_about(expression: str, complaint: str) -> None:
    """The check would not be one if it took anything."""
    assert complaint in "; ".join(complaints(expression, told(), values()))
