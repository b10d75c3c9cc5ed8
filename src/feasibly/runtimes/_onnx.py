"""Tidying an ONNX model: constants that no node uses, which the converter leaves behind, are dropped."""

from __future__ import annotations

from typing import Any


def prune(model: Any) -> Any:
    """The same model without unused constants, in its graph and in those inside it."""
    _prune(model.graph)
    return model


def _prune(graph: Any) -> set[str]:
    """Drop what nobody reads; returns the names that are read here or further in."""
    used = {output.name for output in graph.output}
    for node in graph.node:
        used |= set(node.input)
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else list(attribute.graphs):
                used |= _prune(inner)
    kept = [constant for constant in graph.initializer if constant.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return used
