"""Rows that no shared frame reaches, beliefs that are far off, and beliefs that take long."""

import time
from dataclasses import replace

import numpy as np
import pytest

import feasibly as fb
from feasibly.answer import conditioner, frame, iterate, ladder, tuning
from feasibly.answer import rows as candidates
from feasibly.measure.metrics import measure_rows
from tests.problems import make
from tests.proxies import trained, unseen

# ---- rows that no shared frame reaches ------------------------------------------------------------------


def conditioner_of(proxy):
    return proxy._ladder.conditioner


def rough(data, rows):
    """Beliefs no better than the labels' mean."""
    return np.repeat(data.y[data.solved].mean(axis=0)[None], rows, axis=0)


@pytest.mark.parametrize("polish", [False, True])
@pytest.mark.parametrize("name", ["grid6", "nonconvex"])
def test_a_row_that_no_shared_frame_reaches_is_answered_on_frames_of_its_own(name, polish, monkeypatch):
    proxy, data = trained(name)
    x, best, _ = unseen(proxy, data, 12)
    monkeypatch.setattr(conditioner, "_passes", lambda rows, polish: ())
    found = conditioner_of(proxy).answer(x, rough(data, len(x)), polish=polish)
    assert found.converged.mean() >= 0.9
    assert found.moves[found.converged].min() >= conditioner.OWN_PASS[0]
    rows = measure_rows(proxy.problem, x, found.y, best)
    assert rows.worst[found.converged].max() < 1e-5
    if polish:
        gap = np.abs(rows.objective - best) / np.maximum(np.abs(best), 1e-2)
        assert np.median(gap[found.converged]) < 1e-5


def watch_alone(made, monkeypatch):
    """The rows that `_alone` is called for, as it goes on."""
    called = []
    alone = made._alone

    def watched(x, mean, polish, until, *, single):
        called.append(x[0])
        return alone(x, mean, polish, until, single=single)

    monkeypatch.setattr(made, "_alone", watched)
    return called


def test_no_more_rows_get_frames_of_their_own_than_a_call_may_have(monkeypatch):
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 12)
    monkeypatch.setattr(conditioner, "_passes", lambda rows, polish: ())
    monkeypatch.setattr(conditioner, "OWN_FRAMES", 2)
    monkeypatch.setattr(conditioner, "OWN_SHARED", (0, conditioner.QUICK))  # what serves one serves no other
    made = conditioner_of(proxy)
    called = watch_alone(made, monkeypatch)
    found = made._answer(x, rough(data, len(x)), False, np.inf, False, last=True)
    assert len(called) == 2
    assert not found.converged[2:].any()


def test_hard_rows_share_the_frame_that_served_one_of_them(monkeypatch):
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 12)
    monkeypatch.setattr(conditioner, "_passes", lambda rows, polish: ())
    made = conditioner_of(proxy)
    called = watch_alone(made, monkeypatch)
    found = made.answer(x, rough(data, len(x)))
    assert found.converged.mean() >= 0.9
    assert len(called) < 6


@pytest.mark.parametrize("polish", [False, True])
def test_a_bound_that_was_no_candidate_becomes_one(polish):
    proxy, data = trained("grid6")
    made = conditioner_of(proxy)
    x, best, _ = unseen(proxy, data, 12)
    rows, lam = made.recipe.rows, made.answer(x, rough(data, len(x)), polish=True).lam
    count = len(rows.lower) + len(rows.upper)
    at = int(np.argmax(lam[:, :count].mean(axis=0)))
    assert lam[:, at].min() > 0.0
    bounded = np.isfinite(proxy.problem.lower) & np.isfinite(proxy.problem.upper)
    free = np.flatnonzero((proxy.problem.lower < proxy.problem.upper) & bounded)
    both = np.concatenate([rows.lower, rows.upper])
    both[at] = np.setdiff1d(free, both)[0]  # the bound that presses most is not known of
    base = made.recipe.base.copy()
    base[at] = False
    lower, upper = np.split(both, [len(rows.lower)])
    recipe = replace(made.recipe, rows=candidates.Rows(lower, upper, rows.inequality), base=base)
    blind = conditioner.Conditioner(proxy.problem, recipe, proxy.model.covariance)
    found = blind.answer(x, rough(data, len(x)), polish=polish)
    measured = measure_rows(proxy.problem, x, found.y, best)
    assert found.converged.mean() >= 0.9
    assert measured.worst[found.converged].max() < 1e-5
    assert np.median(np.abs(measured.gap_percent)) < 0.01


def test_bounds_are_swapped_for_idle_ones_alone():
    problem = make("grid6")
    y = (np.nan_to_num(problem.lower, neginf=0.0) + np.nan_to_num(problem.upper, posinf=0.0)) / 2.0
    bounded = np.isfinite(problem.lower) & np.isfinite(problem.upper)
    moving = np.flatnonzero((problem.lower < problem.upper) & bounded)
    a, b, c, d = moving[:4]
    rows = candidates.Rows(np.array([a]), np.array([a, b]), np.zeros(0, dtype=np.int64))
    assert candidates.swap_bounds(problem, rows, np.zeros(3), y) is None  # nothing is violated
    y[c] = problem.upper[c] + 0.1
    assert candidates.swap_bounds(problem, rows, np.array([0.0, 0.0, 2.0]), y).upper.tolist() == [c, b]
    assert candidates.swap_bounds(problem, rows, np.array([0.0, 3.0, 0.0]), y).upper.tolist() == [a, c]
    assert candidates.swap_bounds(problem, rows, np.array([0.0, 3.0, 2.0]), y) is None  # both are needed
    y[d] = problem.lower[d] - 0.1
    found = candidates.swap_bounds(problem, rows, np.zeros(3), y)
    assert found.lower.tolist() == [d]
    assert c in found.upper


def test_frames_of_their_own_are_given_up_where_there_is_nothing_to_find(monkeypatch):
    proxy, data = trained("grid6")
    x = 5.0 * data.x[:2]  # five times the load: nothing can serve it
    monkeypatch.setattr(conditioner, "_passes", lambda rows, polish: ())
    found = conditioner_of(proxy).answer(x, rough(data, len(x)))
    assert not found.converged.any()
    # Twice: what cannot be conditioned is polished before it is given up.
    assert found.moves.max() <= 2 * conditioner.OWN_HOPE[0] * conditioner.OWN_PASS[0]


def test_rows_that_the_belief_leads_astray_start_again_from_the_frames_point(monkeypatch):
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 10)
    monkeypatch.setattr(conditioner, "OWN_FRAMES", 0)
    made = conditioner_of(proxy)
    started = []
    run = made._iteration.run

    def watched(frame, x, mean, state, steps, **named):
        started.append(state.y[0].copy())
        if len(started) <= frames * len(conditioner._passes(10, False)):  # every frame from the belief: fails
            broken = state._replace(y=np.full_like(state.y, np.nan))
            return broken, run(frame, x, mean, state, 1, **named)[1]
        return run(frame, x, mean, state, steps, **named)

    frames = len(made.recipe.centres)
    monkeypatch.setattr(made._iteration, "run", watched)
    found = made.answer(x, rough(data, len(x)))
    again = started[frames * len(conditioner._passes(10, False))]
    assert np.array_equal(again, made.frame(0).y)
    assert found.converged.mean() > 0.5  # without frames of their own some are out of reach


def test_what_cannot_be_polished_is_conditioned(monkeypatch):
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 10)
    made = conditioner_of(proxy)
    monkeypatch.setattr(conditioner, "OWN_FRAMES", 0)
    monkeypatch.setattr(conditioner, "_passes", lambda rows, polish: () if polish else conditioner.PASSES)
    found = made.answer(x, rough(data, len(x)), polish=True)
    assert not found.converged.any()  # none is polished, and says so
    assert made.violation(x, found.y).max() < 1e-4


def test_nothing_is_begun_after_the_time_given(monkeypatch):
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 10)
    made = conditioner_of(proxy)
    monkeypatch.setattr(made._iteration, "run", lambda *args, **named: pytest.fail("moved"))
    for polish in (False, True):
        found = made.answer(x, rough(data, len(x)), polish=polish, until=0.0)
        assert not found.converged.any()
        assert np.all(np.isfinite(found.y))


@pytest.mark.parametrize("rows", [0, 1, 2, 8, 9, 16, 17, 33, 128, 129, 256, 257, 400, 1000])
def test_batches_cover_every_row_once(rows):
    batches = iterate._batches(rows)
    assert [i for part, _ in batches for i in range(part.start, part.stop)] == list(range(rows))
    for part, width in batches:
        assert width in iterate.BUCKETS
        assert part.stop - part.start <= width
    if rows > 1:
        assert sum(width for _, width in batches) < 2 * rows + iterate.BUCKETS[1]


# ---- large frames ---------------------------------------------------------------------------------------


def test_a_sparse_factorisation_splits_the_spaces_as_a_dense_one_does():
    random = np.random.default_rng(0)
    rows, columns = 60, 80
    jacobian = np.where(random.random((rows, columns)) < 0.1, random.standard_normal((rows, columns)), 0.0)
    jacobian[:, :rows] += np.eye(rows)
    null, right = frame._split_sparse(jacobian)
    dense_null, dense_right = frame.split_spaces(jacobian)
    assert np.allclose(right, dense_right, atol=1e-9)
    assert np.allclose(null @ null.T, dense_null @ dense_null.T, atol=1e-9)
    assert np.allclose(null.T @ null, np.eye(columns - rows), atol=1e-12)


def test_equalities_that_repeat_one_another_are_left_to_the_dense_factorisation():
    random = np.random.default_rng(1)
    jacobian = random.standard_normal((5, 9))
    jacobian[4] = jacobian[3]
    assert frame._split_sparse(jacobian) is None
    null, right = frame.split_spaces(jacobian)
    assert null.shape == (9, 5)
    assert np.allclose(jacobian @ right @ jacobian, jacobian)


def blocks(matrices, free):
    """`G`, `R` and the corner of a frame's matrix, each on its own scale."""
    move = np.asarray(matrices.move, dtype=np.float64)
    return -move[:free, :free], -move[:free, free:], move[free:, free:]


@pytest.mark.parametrize(("share", "digits"), [(1.0, 1e-3), (100.0, 1e-2)])
def test_large_problems_take_the_sparse_way_to_the_same_frame(share, digits, monkeypatch):
    proxy, _ = trained("grid6")
    made = conditioner_of(proxy)
    centre = made.recipe.centres[0]
    dense = made._build(centre, share)
    called = []
    split = frame._split_sparse
    monkeypatch.setattr(frame, "LARGE", 0)
    monkeypatch.setattr(frame, "SPARSE", 1.1)
    monkeypatch.setattr(frame, "_split_sparse", lambda jacobian: called.append(1) or split(jacobian))
    sparse = made._build(centre, share)
    assert called
    free = len(dense.free)
    for exact, single in zip(blocks(dense.matrices, free), blocks(sparse.matrices, free), strict=True):
        assert np.allclose(single, exact, atol=digits * np.abs(exact).max())
    gram = np.asarray(dense.matrices.gram)
    assert np.allclose(sparse.matrices.gram, gram, atol=1e-7 * np.abs(gram).max())


def test_a_frames_matrix_inverts_the_optimality_system():
    proxy, _ = trained("grid6")
    made = conditioner_of(proxy)
    x, y, nu, lam = made.recipe.centres[0]
    built = made._build(made.recipe.centres[0])
    first = len(made.recipe.rows.lower) + len(made.recipe.rows.upper)
    jacobian, _, curvature = made._derivatives.at(x, y, nu, lam[first:])
    inside = built.free
    jacobian, curvature = jacobian[:, inside], curvature[np.ix_(inside, inside)]
    metric = (curvature + curvature.T) / 2.0 + made.recipe.weight * made._precision
    null, _ = frame.split_spaces(jacobian)
    reduced = null.T @ metric @ null
    values, vectors = np.linalg.eigh((reduced + reduced.T) / 2.0)
    raised = np.maximum(np.abs(values), 1e-8 * values[-1])  # no direction may be concave
    metric = metric + null @ ((vectors * (raised - values)) @ vectors.T) @ null.T
    system = np.block([[metric, jacobian.T], [jacobian, np.zeros((len(jacobian), len(jacobian)))]])
    exact = np.linalg.inv(system)
    n = len(inside)
    wanted = exact[:n, :n], exact[:n, n:], -exact[n:, n:]
    for part, right in zip(blocks(built.matrices, n), wanted, strict=True):
        assert np.allclose(part, right, atol=1e-5 * np.abs(right).max())


# ---- beliefs that take long --------------------------------------------------------------------------------


def test_a_belief_that_took_long_is_kept_for_the_next_answer(monkeypatch):
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 5)
    rung = ladder.Ladder(proxy.problem, proxy.model, lambda: conditioner_of(proxy), None)
    monkeypatch.setattr(ladder, "WORTH_KEEPING", -1.0)
    asked = []

    class Slow:
        def predict(self, x):
            asked.append(len(x))
            time.sleep(0.2)
            return proxy.model.predict(x)

    rung.model = Slow()
    first = rung.answer(x, "mean")
    first.std[:] = 0.0  # whoever writes to an answer does not change the next
    again = rung.answer(x, "mean")
    assert asked == [5]
    assert again.seconds > 0.2  # what it took then counts now
    assert np.array_equal(first.y, again.y)
    assert again.std.max() > 0.0
    assert rung.answer(x, "conditioned").seconds > 0.2
    assert asked == [5]
    rung.answer(x + 1e-9, "mean")  # other inputs, another belief
    rung.answer(x[:3], "conditioned")
    assert asked == [5, 5, 3]
    rung.forget()
    rung.answer(x[:3], "mean")
    assert asked == [5, 5, 3, 3]
    monkeypatch.setattr(ladder, "LARGEST_KEPT", 4)
    rung.answer(x, "mean")
    rung.answer(x, "mean")
    monkeypatch.setattr(ladder, "LARGEST_KEPT", 1e9)
    monkeypatch.setattr(ladder, "WORTH_KEEPING", 1e9)
    rung.answer(x, "mean")
    assert asked == [5, 5, 3, 3, 5, 5, 5]


def test_a_belief_that_is_far_off_is_not_followed(monkeypatch):
    proxy, data = trained("grid6")
    made = conditioner_of(proxy)
    x, best, _ = unseen(proxy, data, 6)
    usual = proxy.model.predict(x).mean
    assert made._distance(usual, made.answer(x, usual).y).max() < conditioner.FAR

    wrong = usual + 20.0 * np.sqrt(proxy.model.covariance.variance)
    tau, weight = made.recipe.tau / 1e4, 1e4 * made.recipe.weight
    stiff = tuning._with(made, proxy.problem, proxy.model.covariance, weight=weight, tau=tau)
    found = stiff.answer(x, wrong)
    gap = measure_rows(proxy.problem, x, found.y, best).gap_percent
    monkeypatch.setattr(conditioner, "FAR", np.inf)
    followed = stiff.answer(x, wrong)
    gap_followed = measure_rows(proxy.problem, x, followed.y, best).gap_percent
    assert found.converged.all()
    assert np.mean(np.abs(gap)) < 1e-3 * np.mean(np.abs(gap_followed))
    assert (found.moves > followed.moves).sum() >= 4


@pytest.mark.parametrize("rows", [1, 6, 40])
@pytest.mark.parametrize("off", [50.0, 1000.0, np.nan])
def test_however_wrong_the_belief_the_constraints_hold(rows, off):
    proxy, data = trained("grid6")
    x, best, _ = unseen(proxy, data, rows)
    wrong = proxy.model.predict(x).mean + off * np.sqrt(proxy.model.covariance.variance)
    found = conditioner_of(proxy).answer(x, wrong)
    measured = measure_rows(proxy.problem, x, found.y, best)
    assert measured.worst.max() < 1e-5
    assert np.abs(measured.gap_percent).max() < 1e-3


def test_multipliers_go_back_to_their_own_places():
    proxy, _ = trained("grid6")
    made = conditioner_of(proxy)
    usual = made.recipe.rows
    order = np.roll(np.arange(len(usual.lower)), 1)
    rows = candidates.Rows(usual.lower[order], usual.upper, usual.inequality)
    rows.lower[0] = 10_000  # a bound that is no usual candidate
    lam = 1.0 + np.arange(len(usual), dtype=np.float64)[None]
    found = made._in_order(iterate.State(None, None, lam, None), rows).lam[0]
    expected = lam[0].copy()
    expected[: len(order)] = 0.0
    expected[order[1:]] = lam[0, 1 : len(order)]
    assert np.array_equal(found, expected)


def test_a_frame_is_not_taken_where_an_unknown_bound_presses():
    problem = make("grid6")
    y = (np.nan_to_num(problem.lower, neginf=0.0) + np.nan_to_num(problem.upper, posinf=0.0)) / 2.0
    at = int(np.flatnonzero((problem.lower < problem.upper) & np.isfinite(problem.upper))[0])
    none = np.zeros(0, dtype=np.int64)
    assert not tuning._touches_others(problem, candidates.Rows(none, none, none), y)
    y[at] = problem.upper[at]
    assert tuning._touches_others(problem, candidates.Rows(none, none, none), y)
    assert not tuning._touches_others(problem, candidates.Rows(none, np.array([at]), none), y)


def test_an_evaluation_is_repeated_unless_it_took_minutes(monkeypatch):
    proxy, data = trained("grid6")
    calls = []
    predict = type(proxy.model).predict
    monkeypatch.setattr(type(proxy.model), "predict", lambda self, x: calls.append(1) or predict(self, x))
    fb.evaluate_proxy(proxy, data, "mean")
    assert len(calls) == 2
    monkeypatch.setattr("feasibly.proxy.LONG", 0.0)
    fb.evaluate_proxy(proxy, data, "mean")
    assert len(calls) == 3
