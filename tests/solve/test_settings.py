"""The numbers of the solver: one record, which decides what it does and travels with it."""

import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load, save

from feasibly._codec import from_bytes, pack, to_bytes, unpack
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.sampling import sample
from feasibly.solve import Outcome, Solver
from feasibly.solve.settings import DEFAULT, SolverSettings
from tests.problems import make


def test_one_iteration_is_not_enough_and_the_row_is_handed_on():
    problem = make("grid6")
    x = sample(problem, 3, seed=1)
    usual, short = (
        Solver.build(problem, settings=each) for each in (DEFAULT, replace(DEFAULT, most_iterations=1))
    )
    assert usual.interior.solve_from(x[0], usual.nominal.point).converged
    assert not short.interior.solve_from(x[0], usual.nominal.point).converged
    assert short.batch is None, "there is no point of the central path to begin at"
    for row in x:
        one, other = (solver.solve(row, usual.nominal.point) for solver in (usual, short))
        assert (one.attempts, one.outcome, other.outcome) == (1, Outcome.OK, Outcome.OK)
        assert other.attempts > 1
        assert other.objective == pytest.approx(one.objective, rel=1e-6)


def test_lanes_follow_the_same_record():
    problem = make("half-infeasible")
    x = np.array([[1.5], [2.05], [3.0]])
    nothing_given = np.zeros(3, dtype=bool)
    usual, blind = (
        Solver.build(problem, settings=each).batch.solve(x, None, nothing_given)
        for each in (DEFAULT, replace(DEFAULT, infeasible_above=1e6))
    )
    assert usual.infeasible.tolist() == [False, True, True]
    assert blind.infeasible.tolist() == [False, False, False]
    assert blind.converged.tolist() == [True, False, False]


def test_a_solver_takes_its_settings_along():
    settings = replace(DEFAULT, most_free=0, safeguarded=replace(DEFAULT.safeguarded, short_step=1e-4))
    there = Solver.deserialise(Solver.build(make("grid3"), settings=settings).serialise())
    assert there.settings == settings
    assert there.batch is None


def test_bytes_with_settings_that_nobody_knows_here_are_refused():
    kept = from_bytes(zlib.decompress(Solver.build(make("grid3")).serialise()))
    packed = load(to_bytes(kept))
    document = json.loads(packed[".json"].tobytes())
    document["settings"]["haste"] = 1.0
    packed[".json"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
    with pytest.raises(FeasiblyError, match=r"another version.*build it again.*'haste'"):
        Solver.deserialise(zlib.compress(save(packed)))


def test_settings_survive_a_file_and_may_be_incomplete():
    other = replace(
        DEFAULT, start_barriers=(1e-2,), penalty=30.0, elastic=replace(DEFAULT.elastic, most_short_steps=5)
    )
    assert unpack(json.loads(json.dumps(pack(other).plain)), {}, SolverSettings) == other
    assert unpack({"is": "solver-settings", "price": 30}, {}, SolverSettings) == replace(
        DEFAULT, penalty=30.0
    )
    assert hash(other) != hash(DEFAULT)
