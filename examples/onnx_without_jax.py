"""Ask an exported proxy from plain Python: NumPy and ONNX Runtime, no JAX, no feasibly.

python examples/onnx_without_jax.py grid.onnx

`feasibly export MODEL grid.onnx` writes the file and `grid.onnx.json` beside it, which says what the columns are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def main(path: str) -> None:
    """Answer the nominal input and one with every input a little higher, and print what changed most."""
    facts = json.loads(Path(path + ".json").read_text())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    nominal = np.array(facts["inputs"]["x"]["nominal"])
    x = np.stack([nominal, 1.02 * nominal])
    (y,) = session.run(["y"], {"x": x})

    names, units = facts["outputs"]["y"]["names"], facts["outputs"]["y"]["units"]
    print(f"{facts['answer']} answers of {facts['problem']} by {facts['method']}")
    for i in np.argsort(-np.abs(y[1] - y[0]))[:5]:
        print(f"{names[i]:>12}: {y[0, i]:10.5f} -> {y[1, i]:10.5f} {units[i]}")


if __name__ == "__main__":
    main(sys.argv[1])
