"""The graph of states as a file: GraphML for graph tools, DOT for a picture. The name's ending says which."""

import json
from collections.abc import Iterator
from pathlib import Path

import networkx as nx

from batchspec.spec.errors import BatchspecError


def graph_kind(path: Path) -> str:
    """`graphml` or `dot`. Raises `BatchspecError` for any other ending."""
    kind = path.suffix.removeprefix(".")
    if kind not in ("graphml", "dot"):
        raise BatchspecError(f"{path}: a graph is written as .graphml or .dot, not {path.suffix or 'this'}")
    return kind


def write_graph(graph: "nx.MultiDiGraph[int]", path: Path) -> None:
    """Write states (`label`, `depth`) and transitions (`label`), in the order in which they were found."""
    lines = nx.generate_graphml(graph) if graph_kind(path) == "graphml" else _dot(graph)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _dot(graph: "nx.MultiDiGraph[int]") -> Iterator[str]:
    yield "digraph states {"
    for state, label in graph.nodes(data="label"):
        yield f"  {state} [label={json.dumps(label)}];"
    for here, there, label in graph.edges(data="label"):
        yield f"  {here} -> {there} [label={json.dumps(label)}];"
    yield "}"
