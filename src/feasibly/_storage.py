"""A proxy on disk: `proxy.json` for what can be read, `arrays.safetensors` for what is large. No code in either."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.ladder import Leverage
from feasibly.answer.recipe import Recipe
from feasibly.model.belief import Model
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.families import describe, rebuild

if TYPE_CHECKING:
    from feasibly.certificate import Certificate
    from feasibly.proxy import Proxy

FORMAT = 1
TEXT, ARRAYS, FOLDS = "proxy.json", "arrays.safetensors", "folds"


class ModelFileError(FeasiblyError):
    """A folder that is not a proxy this version can read."""


def save_proxy(proxy: Proxy, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write to a folder beside `path` and move it there, so that a reader never sees half of it."""
    from safetensors.numpy import save_file

    target = Path(path)
    if target.exists() and not (overwrite and is_proxy(target)):
        what = (
            "holds a proxy; pass overwrite=True to replace it"
            if is_proxy(target)
            else "exists and is no proxy"
        )
        raise FeasiblyError(f"{target} {what}")
    settings, arrays = proxy.model.state()
    named: dict[str, NDArray[Any]] = _prefixed("model", arrays) | {"keys": _bytes_of(proxy.keys)}
    described = describe(proxy.problem)
    text: dict[str, Any] = {
        "format": FORMAT,
        "kind": proxy.model.kind,
        "model": settings,
        "problem": {"name": proxy.problem.name, "fingerprint": proxy.problem.fingerprint},
        "record": asdict(proxy.record),
    }
    if described is not None:
        text["problem"]["description"] = described[0]
        named |= _prefixed("problem", described[1])
    if proxy.recipe is not None:
        text["recipe"], parts = proxy.recipe.state()
        named |= _prefixed("recipe", parts)
    if proxy.box is not None:
        named |= {"box.low": proxy.box[0], "box.high": proxy.box[1]}
    if proxy.leverage is not None:
        named |= _prefixed("leverage", proxy.leverage.state())
    if proxy.certificate is not None:
        text["certificate"], parts = proxy.certificate.state()
        named |= _prefixed("certificate", parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        (scratch / TEXT).write_text(
            json.dumps(_plain(text), indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
        save_file({key: np.ascontiguousarray(value) for key, value in named.items()}, scratch / ARRAYS)
        for i, fold in enumerate(() if proxy.certificate is None else proxy.certificate.folds):
            save_proxy(fold, scratch / FOLDS / str(i))
        scratch.chmod(0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
            target.rename(old / "proxy")
            scratch.rename(target)
            shutil.rmtree(old)
        else:
            scratch.rename(target)
    except OSError as error:
        raise FeasiblyError(f"the proxy could not be written to {target}: {error.strerror}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def is_proxy(path: Path) -> bool:
    """Whether a folder looks like a saved proxy."""
    return (path / TEXT).is_file()


def load_proxy(path: str | os.PathLike[str], problem: Problem | None) -> Proxy:
    """Read what `save_proxy` wrote."""
    from feasibly.proxy import Proxy, TrainingRecord

    folder = Path(path)
    text = _read_text(folder)
    arrays = _read_arrays(folder)
    try:
        stated = text["problem"]
        if problem is None:
            problem = _reopened(stated, arrays, folder)
        if problem.fingerprint != stated["fingerprint"]:
            raise ModelFileError(
                f"{folder} was trained for another problem ({stated['name']}) than {problem.name}: their data differ"
            )
        model = model_class(text["kind"]).restore(text["model"], _stripped("model", arrays))
        recipe = Recipe.restore(text["recipe"], _stripped("recipe", arrays)) if "recipe" in text else None
        box = (arrays["box.low"], arrays["box.high"]) if "box.low" in arrays else None
        about = _stripped("leverage", arrays)
        record = dict(text["record"])
        for key in ("history", "steps"):
            record[key] = tuple(record[key])
        return Proxy(
            problem,
            model,
            TrainingRecord(**record),
            keys=arrays["keys"].view("S32").ravel(),
            recipe=recipe,
            box=box,
            leverage=Leverage.restore(about) if about else None,
            certificate=_certificate(text.get("certificate"), arrays, folder, problem),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FeasiblyError):
            raise
        raise ModelFileError(f"{folder} is damaged: {type(error).__name__}: {error}") from error


def _certificate(
    plain: Mapping[str, Any] | None, arrays: Mapping[str, NDArray[Any]], folder: Path, problem: Problem
) -> Certificate | None:
    from feasibly.certificate import Certificate

    if plain is None:
        return None
    folds = [load_proxy(folder / FOLDS / str(i), problem) for i in range(int(plain["folds"]))]
    return Certificate.restore(plain, _stripped("certificate", arrays), folds)


def digest(model: Model, recipe: Recipe | None) -> str:
    """A hash of a model and the constants of its conditioning."""
    found = hashlib.sha256(model.kind.encode())
    for state in (model.state(), ({}, {}) if recipe is None else recipe.state()):
        settings, arrays = state
        found.update(json.dumps(_plain(settings), sort_keys=True).encode())
        for key in sorted(arrays):
            values = np.ascontiguousarray(arrays[key])
            found.update(f"{key} {values.dtype.str} {values.shape}".encode())
            found.update(values.tobytes())
    return found.hexdigest()[:32]


def _read_text(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        raise ModelFileError(f"there is no model at {folder}")
    if not is_proxy(folder):
        raise ModelFileError(f"{folder} is not a saved proxy (it has no {TEXT})")
    try:
        text = json.loads((folder / TEXT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{folder / TEXT} cannot be read; the file is damaged") from error
    version = text.get("format") if isinstance(text, dict) else None
    if not isinstance(version, int):
        raise ModelFileError(f"{folder / TEXT} is not a proxy's description")
    if version > FORMAT:
        raise ModelFileError(
            f"{folder} was saved by a newer version of feasibly (format {version}, this one reads {FORMAT}); update it"
        )
    return dict(text)


def _read_arrays(folder: Path) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(folder / ARRAYS))
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{folder / ARRAYS} is missing or truncated; save the proxy again") from error


def _reopened(stated: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], folder: Path) -> Problem:
    if "description" not in stated:
        raise ModelFileError(
            f"{folder} is a proxy for a problem of your own ({stated['name']}); pass it: Proxy.load(path, problem=...)"
        )
    return rebuild(stated["description"], _stripped("problem", arrays))


def model_class(kind: str) -> type[Model]:
    """The class that a stored kind belongs to."""
    from feasibly.model import deterministic, kernel, linear, posterior, response

    classes: tuple[type[Model], ...] = (
        linear.LinearModel,
        kernel.KernelModel,
        response.ResponseModel,
        posterior.BayesianNetwork,
        deterministic.Network,
    )
    for each in classes:
        if each.kind == kind:
            return each
    raise ModelFileError(f"models of the kind {kind!r} are not known to this version of feasibly")


def _prefixed(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{prefix}.{key}": np.asarray(value) for key, value in arrays.items()}


def _stripped(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {
        key.removeprefix(f"{prefix}."): value for key, value in arrays.items() if key.startswith(f"{prefix}.")
    }


def _bytes_of(keys: NDArray[np.bytes_]) -> NDArray[np.uint8]:
    return np.asarray(keys, dtype="S32").view(np.uint8).reshape(len(keys), 32)


def _plain(value: Any) -> Any:
    """NumPy scalars as Python ones; what is not finite as `None`, since JSON has no word for it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
