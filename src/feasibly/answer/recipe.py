"""What conditioning is made from: labels, and the constants that were found on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.rows import Rows
from feasibly.model.belief import Covariance
from feasibly.model.linear import LinearModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Labels:
    """Solved instances; multipliers are `None` where the labels came without any."""

    x: Array
    y: Array
    objective: Array
    equality: Array | None = None
    inequality: Array | None = None
    lower: Array | None = None
    upper: Array | None = None


@dataclass(frozen=True)
class Recipe:
    """Everything a conditioner is rebuilt from: small, plain, and saved with a model."""

    rows: Rows
    base: NDArray[np.bool_]
    weight: float
    tau: float
    span: Array
    flips: int
    threshold: Array
    centres: tuple[tuple[Array, Array, Array, Array], ...]
    """`x, y, nu, lam` of each frame."""
    duals: LinearModel
    covariance: Covariance | None = None
    """The belief's, where it is not the model's own: frames must be the same after a model was saved and loaded."""

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plain settings and arrays."""
        plain, arrays = self.duals.state()
        named: dict[str, NDArray[Any]] = {f"duals.{key}": value for key, value in arrays.items()}
        named |= {
            "lower": self.rows.lower,
            "upper": self.rows.upper,
            "inequality": self.rows.inequality,
            "base": self.base,
            "span": self.span,
            "threshold": self.threshold,
        }
        if self.covariance is not None:
            named |= {
                "covariance.factor": self.covariance.factor,
                "covariance.diagonal": self.covariance.diagonal,
            }
        for i, centre in enumerate(self.centres):
            named |= {
                f"centre{i}.{key}": value for key, value in zip(("x", "y", "nu", "lam"), centre, strict=True)
            }
        settings = {
            "weight": self.weight,
            "tau": self.tau,
            "flips": self.flips,
            "frames": len(self.centres),
            "duals": plain,
        }
        return settings, named

    @staticmethod
    def restore(settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Recipe:
        """The recipe that `state` described."""
        duals = {
            key.removeprefix("duals."): value for key, value in arrays.items() if key.startswith("duals.")
        }
        centres = tuple(
            (
                arrays[f"centre{i}.x"],
                arrays[f"centre{i}.y"],
                arrays[f"centre{i}.nu"],
                arrays[f"centre{i}.lam"],
            )
            for i in range(int(settings["frames"]))
        )
        return Recipe(
            rows=Rows(arrays["lower"], arrays["upper"], arrays["inequality"]),
            base=arrays["base"].astype(bool),
            weight=float(settings["weight"]),
            tau=float(settings["tau"]),
            span=arrays["span"],
            flips=int(settings["flips"]),
            threshold=arrays["threshold"],
            centres=centres,
            duals=LinearModel.restore(settings["duals"], duals),
            covariance=Covariance(arrays["covariance.factor"], arrays["covariance.diagonal"])
            if "covariance.factor" in arrays
            else None,
        )
