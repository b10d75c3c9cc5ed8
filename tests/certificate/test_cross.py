"""Certificates without further labels: models refitted without each fold, kept and sealed with the proxy."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import feasibly as fb
from feasibly.certificate import CertificateError
from feasibly.data.dataset import Dataset
from feasibly.model.linear import fit_ridge
from feasibly.proxy import Proxy
from tests.certified import MEAN, believer, gaps, solved
from tests.sealed import edit


def test_cross_leaves_each_label_out_of_its_own_model(toy_data: Dataset, tmp_path: Path) -> None:
    proxy = believer(toy_data, 102)
    made = fb.certify(proxy, toy_data, 0.9, variant="cross", folds=5, **MEAN)
    collected = made.answers["mean"].cross
    assert collected is not None
    assert made.labels == 0
    assert made.answers["mean"].labels == 100
    assert "2 training labels were left out" in made.notes[0]
    order = np.random.default_rng(0).permutation(np.arange(102))[:100]
    for k in range(5):
        inside, outside = order[20 * k : 20 * k + 20], np.setdiff1d(order, order[20 * k : 20 * k + 20])
        alone = fit_ridge(toy_data.x[outside], toy_data.y[outside]).predict(toy_data.x[inside])
        np.testing.assert_allclose(
            collected.residual[20 * k : 20 * k + 20], toy_data.y[inside] - alone.mean, atol=1e-10
        )
    loss = min(2 * (1 - 1 / 5) / (20 + 1), (1 - 5 / 100) / (5 + 1))
    assert collected.guarantee == pytest.approx(1 - 0.2 - loss)
    assert "no label beyond those the proxy was trained on" in made.describe()
    assert f"at least {100 * collected.guarantee:.4g} % each (usually near 90 %)" in made.describe()
    assert "needs labels that were kept apart" in made.answers["mean"].absent["outputs"]

    fresh = solved("toy", 600, 9)
    found = proxy.predict(fresh.x, "mean")
    inside_ = ((found.lower <= fresh.y) & (fresh.y <= found.upper)).all(axis=1)
    assert inside_.mean() > collected.guarantee
    assert (gaps(fresh, found.objective) <= found.gap_limit).mean() > collected.guarantee
    proxy.save(tmp_path / "model")
    again = Proxy.load(tmp_path / "model", problem=toy_data.problem).predict(fresh.x, "mean")
    np.testing.assert_allclose(again.upper, found.upper, rtol=1e-9, atol=1e-12)  # type: ignore[arg-type]


def _swap(folds: Path) -> None:
    (folds / "0").rename(folds / "aside")
    (folds / "1").rename(folds / "0")
    (folds / "aside").rename(folds / "1")


def _flip(file: Path) -> None:
    spoilt = bytearray(file.read_bytes())
    spoilt[-1] ^= 1
    file.write_bytes(spoilt)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_swap, r"folds/0/proxy\.json is not the one that was saved with this model"),
        (lambda folds: shutil.rmtree(folds / "1"), r"folds/1/proxy\.json is missing"),
        (lambda folds: shutil.rmtree(folds), r"folds/0/proxy\.json is missing"),
        (lambda folds: _flip(folds / "2" / "proxy.json"), r"folds/2/proxy\.json is not the one"),
        (lambda folds: _flip(folds / "2" / "arrays.safetensors"), r"arrays\.safetensors has changed"),
    ],
)
def test_the_models_of_the_folds_are_sealed_with_the_proxy(
    crossed: Proxy, tmp_path: Path, spoil: Callable[[Path], object], sentence: str
) -> None:
    crossed.save(tmp_path / "model")
    spoil(tmp_path / "model" / "folds")
    with pytest.raises(fb.FeasiblyError, match=sentence):
        Proxy.load(tmp_path / "model", problem=crossed.problem)


def test_folds_saved_before_they_were_sealed_still_open(crossed: Proxy, tmp_path: Path) -> None:
    crossed.save(tmp_path / "model")
    edit(tmp_path / "model", lambda text: text.pop("parts"))
    again = Proxy.load(tmp_path / "model", problem=crossed.problem)
    assert again.certificate is not None
    assert len(again.certificate.folds) == 5
    x = fb.sample(crossed.problem, 5, seed=3)
    np.testing.assert_allclose(again.predict(x, "mean").upper, crossed.predict(x, "mean").upper)  # type: ignore[arg-type]
    shutil.rmtree(tmp_path / "model" / "folds" / "4")
    with pytest.raises(fb.FeasiblyError, match="folds/4 is missing: the certificate rests on 5 such models"):
        Proxy.load(tmp_path / "model", problem=crossed.problem)


@pytest.fixture(scope="module")
def crossed(toy_data: Dataset) -> Proxy:
    """A proxy with a certificate that rests on the models of five folds."""
    proxy = believer(toy_data, 100)
    fb.certify(proxy, toy_data, 0.9, variant="cross", folds=5, **MEAN)
    return proxy


def test_cross_refuses_what_it_cannot_promise(toy_data: Dataset) -> None:
    proxy = believer(toy_data, 100)
    with pytest.raises(CertificateError, match="only 50 of the 100 rows"):
        fb.certify(proxy, toy_data.take(np.arange(50, 320)), 0.9, variant="cross", **MEAN)
    with pytest.raises(CertificateError, match="needs 99 training labels in equal folds, not 96"):
        fb.certify(proxy, toy_data, 0.99, variant="cross", **MEAN)
    proxy.record = dataclasses.replace(proxy.record, method="sandwich-bnn")
    with pytest.raises(CertificateError, match="use the variant 'split'"):
        fb.certify(proxy, toy_data, 0.9, variant="cross", **MEAN)
