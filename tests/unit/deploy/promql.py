"""What is wrong with a PromQL expression on our metrics: it does not parse, or asks for what nobody tells."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser
from promql_parser import AggregateExpr, MatchOp, MatrixSelector, VectorSelector

GRAFANA = {"$__rate_interval": "5m", "$__range": "1h"}
VARIABLE = re.compile(r"\$\{?\w+\}?")
PARTS = ("lhs", "rhs", "expr", "args", "vector_selector", "param")

Labels = Mapping[str, frozenset[str]]  # of each series that is told, by its name
Values = Mapping[str, frozenset[str]]  # of labels whose values are known beforehand


def complaints(expression: str, told: Labels, values: Values) -> list[str]:
    """Empty for an expression that finds what it asks for; Grafana's variables may stand in it."""
    for variable, value in GRAFANA.items():
        expression = expression.replace(variable, value)
    try:
        tree = promql_parser.parse(VARIABLE.sub(".+", expression))
    except ValueError as error:
        return [f"{expression}: {error}"]
    found = [each for selector in _selectors(tree) for each in _complaints_of(selector, told, values)]
    for node in _nodes(tree):
        if isinstance(node, AggregateExpr) and node.modifier is not None:
            known = frozenset[str]().union(*(told.get(below.name, ()) for below in _selectors(node)))
            found += [f"no {label} to group by in {expression}" for label in node.modifier.labels if label not in known]
    return found


def _complaints_of(selector: Any, told: Labels, values: Values) -> Iterator[str]:
    if selector.name not in told:
        yield f"nobody tells {selector.name}"
        return
    for matcher in selector.matchers.matchers:
        if matcher.name not in told[selector.name]:
            yield f"{selector.name} has no label {matcher.name}"
        elif matcher.op == MatchOp.Equal and matcher.value not in values.get(matcher.name, (matcher.value,)):
            yield f"{matcher.name} is never {matcher.value}"


def _selectors(tree: Any) -> list[Any]:
    return [node for node in _nodes(tree) if isinstance(node, VectorSelector)]


def _nodes(tree: Any) -> Iterator[Any]:
    yield tree
    if isinstance(tree, MatrixSelector):
        yield tree.vector_selector
        return
    for name in PARTS:
        part = getattr(tree, name, None)
        for node in part if isinstance(part, list) else [part]:
            if node is not None and type(node).__module__ == type(tree).__module__:
                yield from _nodes(node)
