"""Lower bounds that hold, against a conic solver and against the costs of solved instances."""

from __future__ import annotations

import dataclasses
import functools
import json
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import feasibly as fb
from feasibly import proof
from feasibly._codec import pack
from feasibly.bound.cone import Cone, Instance, Multipliers, _cheapest, lower_bound
from feasibly.bound.lagrange import convex_bound, proves_infeasible
from feasibly.bound.relaxation import loose_rows, relaxation, to_multipliers
from feasibly.precision import double
from feasibly.problem.errors import ProofWarning
from feasibly.problem.families import grid_of
from feasibly.problem.point import Duals, Point
from feasibly.proof import Prover
from feasibly.solve.model import build_model
from feasibly.solve.nlp import Solver
from tests.conic import relax
from tests.grids import GRID3
from tests.problems import make
from tests.proxies import patient, trained, unseen
from tests.sealed import edit


@functools.cache
def proving(name: str) -> fb.Proxy:
    proxy, _ = trained(name)
    if proxy._prover is None:
        proxy.learn_proofs(labels=16, budget=900.0)
    return proxy


def _conic(name: str, x: np.ndarray) -> np.ndarray:
    grid = grid_of(make(name))
    return np.array([relax(grid, row[: grid.n_loads], row[grid.n_loads :]).value for row in x])


@pytest.mark.parametrize("name", ["grid6"])
def test_bound_is_the_value_of_the_relaxation(name):
    proxy = proving(name)
    _, data = trained(name)
    x, cost, _ = unseen(proxy, data, 12)
    found = proxy.predict(x, "polished", prove=True)
    conic = _conic(name, x)
    assert (found.lower_bound <= conic + 1e-6 * np.abs(conic)).all()
    assert (found.lower_bound <= cost).all()
    own = (cost - conic) / cost  # the relaxation's own gap
    assert np.mean((conic - found.lower_bound) / cost) < 0.1 * np.mean(own) + 1e-6
    gap = 100.0 * (found.objective - found.lower_bound) / found.objective
    assert np.allclose(found.proven_gap_percent, gap)


def test_bounds_by_shared_operators_are_tight_or_left_to_the_solver(monkeypatch):
    """How much they lose is known from the relaxed answer's own cost; what loses more goes the longer way."""
    made = proving("grid6")
    _, data = trained("grid6")
    x, cost, _ = unseen(made, data, 12)
    quick = proof.Prover(made.prover.cone, patient(made.prover.relaxed), made.prover.loose)
    few = quick._quickly(x)
    monkeypatch.setattr(proof, "LOST", -1.0)
    exact = quick.bound(x)[0]
    known = np.isfinite(few)
    assert known.any()
    assert (few[known] <= cost[known]).all()
    assert np.all(exact[known] - few[known] <= 1.1e-5 * np.abs(exact[known]))
    assert np.isneginf(quick._quickly(x)).all()
    assert np.isfinite(exact).all()


def test_limits_that_nobody_came_near_are_found_by_trials():
    """A prover that watches none of the limits proves what one that watches all of them does."""
    proxy, (_, data) = proving("grid6"), trained("grid6")
    x, _, _ = unseen(proxy, data, 12)
    relaxed = proxy.prover.relaxed
    every = np.arange(relaxed.problem.n_inequalities)
    bounds, kept = [], []
    for watched in (every[:0], every):
        prover = Prover(proxy.prover.cone, relaxed, proxy.prover.loose)
        rowwise = relaxed.ladder.driver.rowwise.watching(watched)
        relaxed.ladder.driver.rowwise, usual = rowwise, relaxed.ladder.driver.rowwise
        try:
            bounds.append(prover._roughly(x))
            kept.append(len(prover._rough._kept))
        finally:
            relaxed.ladder.driver.rowwise = usual
    assert kept[0] < kept[1]
    assert np.isfinite(bounds[1]).all()
    np.testing.assert_allclose(*bounds, rtol=1e-4)


def test_a_relaxation_with_loose_pairs_starts_from_the_one_without(monkeypatch):
    monkeypatch.setattr(proof, "MANY", 1)
    proxy, _ = trained("grid6")
    _, firm = Prover.problem(proxy, [])
    assert firm.first_guess is None
    loose = np.arange(3)
    _, relaxed = Prover.problem(proxy, loose)
    model, easy = build_model(relaxed), Solver.build(firm).nominal
    np.testing.assert_allclose(model.start[: firm.n_outputs], easy.y, atol=1e-8)
    assert not np.allclose(relaxed.start[: firm.n_outputs], easy.y, atol=1e-2)
    assert Solver.build(relaxed).nominal.outcome.ok


def test_proofs_for_several_threads_are_those_for_one():
    made = proving("grid6")
    _, data = trained("grid6")
    x, _, _ = unseen(made, data, 24)
    alone = made.prover.bound(x)[0]
    with ThreadPoolExecutor(4) as pool:
        together = list(
            pool.map(
                lambda part: made.prover.bound(x[part])[0], [slice(k, k + 6) for k in range(0, 24, 6)] * 4
            )
        )
    assert np.allclose(np.concatenate(together), np.tile(alone, 4), rtol=1e-7)


def test_a_report_tells_what_is_proven_from_what_is_promised(tmp_path):
    proxy, data = trained("grid6")
    found = [fb.evaluate_proxy(proxy, data, "conditioned", limit=10)]
    proving("grid6")
    text = fb.write_report(tmp_path / "r.html", data, found, prove=True).read_text(encoding="utf-8")
    assert "Proven, and no matter of probability: of 10 instances" in text
    assert "How far each of 10 answers by conditioned can be above the optimum at most" in text


@pytest.mark.parametrize("loose", ["all", "none", "others", "alone"])
@pytest.mark.parametrize("ends", [[1, 2], [2, 1]])
def test_an_angle_limit_that_parallel_branches_share_counts_once(tmp_path, ends, loose):
    """Whichever way round the second one is written, and whether its pair may leave its cone or not, the bound from the
    relaxation's own multipliers loses nothing."""
    lines = GRID3.branch.copy()
    lines[:, [11, 12]] = -30.0, 30.0
    k = int(np.flatnonzero((lines[:, 0] == 1) & (lines[:, 1] == 2))[0])
    lines[k, [11, 12]] = -0.3, 0.3
    second = lines[k].copy()
    second[[0, 1]], second[3] = ends, 1.4 * second[3]
    tables = dataclasses.replace(GRID3, branch=np.vstack([lines, second]))
    problem = fb.load_problem(tables.write(tmp_path / "grid.m"))
    grid, x = grid_of(problem), problem.nominal[None]
    cone = Cone.of(grid)
    pairs = np.arange(cone.n_pairs)
    limited = cone.end_pair[k]
    free = {"all": pairs, "none": pairs[:0], "others": np.delete(pairs, limited), "alone": pairs[[limited]]}[
        loose
    ]
    relaxed = relaxation(cone, loose=free, problem=problem)
    solved = Solver.build(relaxed).solve(x[0])
    with double():
        m = to_multipliers(cone, relaxed, x, solved.point.take(None), free)
        assert np.abs(m.angle).max() > 1.0  # the limit presses
        at = Instance.of(grid, problem.inputs, jnp.asarray(x.T))
        found = float(lower_bound(cone, Multipliers(*map(jnp.asarray, m)), at)[0])
    exact = relax(grid, x[0, : grid.n_loads], x[0, grid.n_loads :]).value
    assert found == pytest.approx(exact, rel=1e-5)


def test_some_inequalities_of_the_relaxation_are_those_of_all():
    problem = make("grid6")
    cone = Cone.of(grid_of(problem))
    loose = np.arange(1, cone.n_pairs, 2)
    relaxed = relaxation(cone, loose=loose, problem=problem)
    random = np.random.Generator(np.random.Philox(key=3))
    y = relaxed.start + 0.2 * random.standard_normal(relaxed.n_outputs)
    with double():
        every = np.asarray(relaxed.inequality(problem.nominal, y))
        for rows in (loose_rows(cone, loose), np.flatnonzero(random.random(len(every)) < 0.4)):
            np.testing.assert_allclose(relaxed.only(rows)(problem.nominal, y), every[rows], rtol=1e-12)


@pytest.mark.parametrize("name", ["grid6"])
def test_any_multipliers_give_a_bound(name):
    """Nonsense in, a valid bound out: nothing rests on what was learnt."""
    problem = make(name)
    grid = grid_of(problem)
    cone = Cone.of(grid)
    data = trained(name)[1]
    rows = np.flatnonzero(data.solved)[:8]
    random = np.random.Generator(np.random.Philox(key=7))
    ends = len(cone.rated), len(cone.rated), len(cone.limited), len(cone.above) + len(cone.below)
    sizes = (grid.n_buses, grid.n_buses, *ends, cone.n_pairs)
    with double():
        at = Instance.of(grid, problem.inputs, jnp.asarray(data.x[rows].T))
    for scale in (0.01, 1.0, 100.0, 1e4):
        draws = [scale * random.standard_normal((size, len(rows))) for size in sizes]
        draws[-1] = 0.3 * random.standard_normal(draws[-1].shape)
        draws[0] += data.duals.equality[rows, : grid.n_buses].T * -1.0
        with double():
            low = np.asarray(lower_bound(cone, Multipliers(*map(jnp.asarray, draws)), at))
        assert (low <= data.objective[rows]).all()
        assert np.isfinite(low).all()
        # Without limits on reactive power there is more to choose from, and still a finite bound.
        open_ends = dataclasses.replace(
            grid, qmax=np.full(grid.n_generators, np.inf), pmin=grid.pmin - np.inf
        )
        with double():
            wider = np.asarray(lower_bound(Cone.of(open_ends), Multipliers(*map(jnp.asarray, draws)), at))
        assert np.isfinite(wider).all()
        assert (wider <= data.objective[rows]).all()


def test_limits_that_are_no_cuts_are_left_out():
    """With an angle limited on one side only the other side may be beyond a right angle: c < 0, where tan misleads."""
    grid = grid_of(make("grid6"))
    both = np.maximum(np.abs(grid.angmin), np.abs(grid.angmax)) < np.pi / 2
    one_sided = dataclasses.replace(grid, angmin=np.full(grid.n_branches, -np.inf))
    assert np.array_equal(Cone.of(grid).above, np.flatnonzero(both))
    assert len(Cone.of(one_sided).above) == len(Cone.of(one_sided).below) == 0


def test_a_generator_is_minimised_over_its_range_whatever_its_cost():
    random = np.random.Generator(np.random.Philox(key=5))
    square, slope = random.standard_normal((2, 50))
    square[:10] = 0.0
    low, high = np.sort(random.standard_normal((2, 50)), axis=0)
    with double():
        found = np.asarray(_cheapest(*map(jnp.asarray, (square, slope, low, high))))
    p = np.linspace(low, high, 4001)
    tried = ((square * p + slope) * p).min(axis=0)
    assert (found <= tried + 1e-12).all()
    assert np.allclose(found, tried, atol=1e-5)


def test_an_infeasible_input_is_proven_so():
    proxy = proving("grid6")
    x = proxy.problem.nominal * np.array([[1.0], [3.0]])
    found = proxy.predict(x, "auto", prove=True)
    assert found.lower_bound[1] == np.inf
    assert np.isfinite(found.lower_bound[0])
    assert found.outcome[1].name == "INFEASIBLE"
    assert any("Row 1 is proven infeasible" in line for line in found.warnings)
    conic = relax(grid_of(proxy.problem), *np.split(x[1], 2))
    assert "Infeasible" in conic.status


@pytest.mark.parametrize("together", [True, False])
def test_what_is_lacking_is_no_more_than_a_conic_solver_says(together, monkeypatch):
    proxy = proving("grid6")
    prover = Prover(proxy.prover.cone, proxy.prover.relaxed, proxy.prover.loose)
    if not together:
        monkeypatch.setattr(Solver, "batch", None)
    x = proxy.problem.nominal * np.array([[1.0], [1.6], [2.0], [3.0]])
    bounds, short = prover._freely(x)
    grid = grid_of(proxy.problem)
    least = np.array([relax(grid, *np.split(row, 2), lacking=True).value for row in x])
    assert (short <= least + 1e-6).all()
    assert (np.isposinf(bounds) == (least > 1e-4)).all()
    assert short[-1] > 0.5 * least[-1] > 0.0
    if together:  # rows that are solved on the way have their bounds
        usual = proxy.predict(x[:1], "auto", prove=True).lower_bound
        assert np.allclose(bounds[:1], usual, rtol=1e-5)


def test_proofs_survive_saving(tmp_path):
    proxy = proving("grid6")
    x = fb.sample(proxy.problem, 4, seed=9)
    proxy.save(tmp_path / "model")
    again = fb.Proxy.load(tmp_path / "model")
    assert again._prover is not None
    same = again.predict(x, prove=True).lower_bound
    assert np.allclose(same, proxy.predict(x, prove=True).lower_bound, rtol=1e-7)
    frame = again.predict(x, prove=True).to_pandas()
    assert np.allclose(frame["lower_bound"], same, rtol=1e-7)
    grid = grid_of(proxy.problem)
    pairs = tmp_path / "model" / "proof" / "pairs.json"

    def older(text):
        """As models were saved before."""
        for name in ("parts", "loose", "relaxation"):
            text.pop(name)
        plain = text["problem"]["description"]
        del plain["grid"]
        text["problem"]["description"] = plain | {"name": grid.name, "base_mva": grid.base_mva}
        text["grid"] = pack(grid.arrays(), "grid").plain
        text["format"] = 2

    edit(tmp_path / "model", older)
    pairs.write_text(json.dumps({"loose": proxy._prover.loose.tolist()}))
    # Pairs were written otherwise then.
    with pytest.warns(ProofWarning, match="the next proof learns it anew"):
        assert fb.Proxy.load(tmp_path / "model")._prover is None
    pairs.write_text('{"loose": []}')
    with pytest.raises(fb.FeasiblyError, match="another problem"):
        fb.Proxy.load(tmp_path / "model")


@pytest.mark.parametrize("name", ["toy", "degenerate"])
def test_a_convex_problem_has_its_lagrange_dual(name):
    proxy, data = trained(name)
    x, cost, _ = unseen(proxy, data, 12)
    found = proxy.predict(x, "polished", prove=True)
    assert (found.lower_bound <= cost + 1e-9).all()
    assert (cost - found.lower_bound < 1e-5).all()
    # Wrong multipliers make it weak, not wrong.
    off = dataclasses.replace(found.duals, equality=found.duals.equality + 0.3)
    assert (convex_bound(proxy.problem, x, found.y, off) <= cost + 1e-9).all()


def test_an_output_without_bounds_is_bounded_by_curvature():
    problem = fb.Problem(
        lambda x, y: jnp.sum((y - x) ** 2) + y[0] * y[1],
        np.full(2, -np.inf),
        np.full(2, np.inf),
        inequality=lambda x, y: jnp.stack([y[0] ** 2 + y[1] ** 2 - 0.5]),
        box=([0.0, 0.0], [1.0, 1.0]),
        name="a disc",
    )
    data = fb.label(problem, fb.sample(problem, 40, seed=2), jobs=1)
    proxy = fb.fit(problem, data, "ridge", labels=20)
    x, cost, _ = unseen(proxy, data, 12)
    found = proxy.predict(x, "polished", prove=True)
    assert (found.lower_bound <= cost + 1e-9).all()
    assert (cost - found.lower_bound < 1e-4).all()


@pytest.mark.parametrize("bent", [False, True])
def test_a_convex_problem_without_an_answer_is_proven_so(bent):
    """Within a disc, or a box: the outputs' sum is asked to be more than either has room for."""
    if bent:
        limit = 1.0
        problem = fb.Problem(
            lambda x, y: jnp.sum(y**2) + y[0],
            np.full(2, -2.0),
            np.full(2, 2.0),
            inequality=lambda x, y: 7.0 * jnp.stack([y[0] ** 2 + y[1] ** 2 - 0.5, x[0] - y[0] - y[1]]),
            box=([0.0], [2.0]),
            name="a disc",
        )
    else:
        limit, problem = 2.0, make("half-infeasible")
    low, high = (float(end[0]) for end in problem.box())
    proxy = fb.fit(
        problem, fb.label(problem, np.linspace(low, limit, 24)[:, None], jobs=1), "ridge", budget=60
    )
    x = np.concatenate([np.linspace(low, limit - 1e-6, 7), np.linspace(limit + 1e-3, high, 7)])[:, None]
    found = proxy.predict(x, "auto", prove=True)
    none = x[:, 0] > limit
    assert np.array_equal(np.isposinf(found.lower_bound), none)
    assert [o.name == "INFEASIBLE" for o in found.outcome] == none.tolist()
    assert (
        sum("is proven infeasible: no answer within its bounds" in line for line in found.warnings)
        == none.sum()
    )
    # Whatever the multipliers, nothing of the kind is said of a row that has an answer.
    random = np.random.Generator(np.random.Philox(key=11))
    for size in (1e-3, 1.0, 1e3):
        parts = (problem.n_equalities, problem.n_inequalities, 2, 2)
        duals = Duals(*(size * random.standard_normal((7, count)) for count in parts))
        assert not proves_infeasible(problem, x[:7], Point(found.y[:7], duals)).any()


def test_wide_bounds_do_not_hide_that_nothing_is_feasible():
    """A slope of 1e-5, which the search for a feasible point leaves, times a thousand is more than what is lacking."""
    problem = fb.Problem(
        lambda x, y: jnp.sum(y**2) / 1e3,
        np.zeros(2),
        np.full(2, 1000.0),
        equality=lambda x, y: jnp.stack([y[0] + y[1] - 1400.0, y[0] + y[1] - 1400.0 - x[0]]),
        box=([0.0], [0.2]),
    )
    solver = Solver.build(problem)
    for lacking in (0.01, 0.2):
        x = np.array([lacking])
        point = solver.feasibility.least_infeasible(x, solver.model.start)
        assert proves_infeasible(problem, x[None], point.take(None)).all()
    feasible = solver.feasibility.least_infeasible(np.zeros(1), solver.model.start)
    assert not proves_infeasible(problem, np.zeros((1, 1)), feasible.take(None)).any()


def test_a_row_that_bends_down_and_has_no_answer_spoils_no_other():
    problem = fb.Problem(
        lambda x, y: y[0] ** 2,
        [-1.0],
        [1.0],
        inequality=lambda x, y: jnp.stack([x[0] * y[0] ** 2 - x[1]]),
        box=([-1.0, -2.0], [1.0, 2.0]),
    )
    x = np.array([[1.0, 0.5], [-1.0, -2.0]])
    duals = Duals(*(np.ones((2, count)) for count in (0, 1, 1, 1)))
    found = proves_infeasible(problem, x, Point(np.zeros((2, 1)), duals))
    assert not found.any()
    assert not proves_infeasible(problem, x[1:], Point(np.zeros((1, 1)), duals.take(np.array([1])))).any()
    both = convex_bound(problem, x, np.zeros((2, 1)), duals)
    assert np.isfinite(both[0])
    assert np.isnan(both[1])


def test_what_has_no_bound_says_so():
    proxy, data = trained("nonconvex")
    with pytest.raises(fb.FeasiblyError, match="no lower bound is known"):
        proxy.predict(data.x[:2], prove=True)
    around = jnp.sin  # of what came around a loop: an output from the second turn on
    looping = fb.Problem(
        lambda x, y: jax.lax.scan(lambda s, v: (around(s) + (v - x[0]) ** 2, None), 0.0, y)[0],
        [0.0, 0.0],
        [1.0, 1.0],
        box=([0.0], [1.0]),
    )
    with pytest.raises(fb.FeasiblyError, match="sin of outputs is no polynomial"):
        convex_bound(looping, np.ones((1, 1)), np.ones((1, 2)), Duals.nothing(looping, 1))
    toy, data = trained("toy")
    with pytest.raises(fb.FeasiblyError, match="made of multipliers"):
        toy.predict(data.x[:2], "mean", prove=True)
