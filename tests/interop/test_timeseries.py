"""Time series of a pandapower net against pandapower's own, which runs one optimal power flow after another."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest

import feasibly as fb
from feasibly.interop._pandapower_profiles import profile_inputs, read_profiles
from tests.interop.nets import many_kinds, two_bus

pp = pytest.importorskip("pandapower")

HOURS = 40
TIGHT = {"PDIPM_COSTTOL": 1e-9, "PDIPM_GRADTOL": 1e-8, "PDIPM_COMPTOL": 1e-9, "OPF_VIOLATION": 1e-9}
LOG = [
    ("res_bus", "vm_pu"), ("res_bus", "va_degree"), ("res_bus", "lam_p"), ("res_bus", "p_mw"), ("res_line", "p_to_mw"),
    ("res_line", "loading_percent"), ("res_trafo", "loading_percent"), ("res_trafo3w", "loading_percent"),
    ("res_gen", "p_mw"), ("res_gen", "vm_pu"), ("res_sgen", "p_mw"), ("res_load", "p_mw"), ("res_storage", "p_mw"),
    ("res_ext_grid", "p_mw"),
]  # fmt: skip


def _with_profiles() -> Any:
    """The net of many kinds with a profile for loads and one for the sun, given as pandapower users give them."""
    from pandapower.control import ConstControl
    from pandapower.timeseries import DFData, OutputWriter

    net = many_kinds()
    hour = np.arange(HOURS)
    day = 0.8 + 0.15 * np.sin(hour / 24 * 2 * np.pi)
    frame = pd.DataFrame(
        {
            "town": 22.0 * day,
            "village": 12.0 * day[::-1],
            "sun": 3.0 * np.maximum(0, np.sin(hour / 12 * np.pi)),
        }
    )
    source = DFData(frame)
    ConstControl(net, "load", "p_mw", [0, 1], profile_name=["town", "village"], data_source=source)
    ConstControl(net, "sgen", "p_mw", 1, profile_name="sun", data_source=source, scale_factor=0.9)
    OutputWriter(net, log_variables=list(LOG))
    return net


@pytest.fixture(scope="module")
def run() -> tuple[Any, fb.TimeSeries]:
    net = _with_profiles()
    return net, fb.run_timeseries(net, method="ridge", labels=24, budget=900.0, jobs=1)


def test_every_step_is_answered_and_obeys(run: tuple[Any, fb.TimeSeries]) -> None:
    _, series = run
    assert series.steps == tuple(range(HOURS))
    assert series.answer.ok.all()
    assert set(series.tables) == {f"{table}.{column}" for table, column in LOG}


def test_tables_are_those_of_pandapowers_own_time_series(run: tuple[Any, fb.TimeSeries]) -> None:
    from pandapower.timeseries import run_timeseries

    net, series = run
    theirs = copy.deepcopy(net)
    steps = [3, 17, 30]
    run_timeseries(theirs, steps, run=pp.runopp, numba=False, verbose=False, **TIGHT)
    written = theirs.output_writer.iat[0, 0].output
    for key, table in series.tables.items():
        expected = written[key].loc[steps]
        assert list(table.columns) == list(expected.columns), key
        np.testing.assert_allclose(table.loc[steps], expected, rtol=1e-3, atol=5e-3, err_msg=key)


def test_all_at_once_is_what_pandapower_writes_row_by_row(run: tuple[Any, fb.TimeSeries]) -> None:
    net, series = run
    copied = copy.deepcopy(net)
    columns = [
        (table, column)
        for table in ("res_bus", "res_line", "res_trafo", "res_gen", "res_ext_grid", "res_sgen", "res_load")
        for column in _columns(series, copied, table)
    ]
    tables = series.answer.to_pandapower(net, columns)
    for row in (0, 25):
        series.answer.write_pandapower(copied, row)
        for table, column in columns:
            np.testing.assert_allclose(
                tables[f"{table}.{column}"].iloc[row], copied[table][column], rtol=1e-9, atol=1e-9
            )


def _columns(series: fb.TimeSeries, net: Any, table: str) -> list[str]:
    series.answer.write_pandapower(net, 0)
    return list(net[table].columns)


def test_profiles_are_read_from_the_nets_controllers() -> None:
    profiles = read_profiles(_with_profiles())
    assert {key: list(frame.columns) for key, frame in profiles.items()} == {
        ("load", "p_mw"): [0, 1],
        ("sgen", "p_mw"): [1],
    }
    assert profiles["sgen", "p_mw"][1].max() == pytest.approx(2.7)


def test_scaling_signs_and_limits_are_pandapowers() -> None:
    """A row of inputs is the nominal input of the net with that row's values in it."""
    net = many_kinds()
    net.sgen.loc[1, "max_p_mw"] = 2.5
    problem = fb.from_pandapower(net)
    profiles = {
        ("load", "scaling"): pd.DataFrame({1: [0.5, 0.7]}),
        ("sgen", "p_mw"): pd.DataFrame({1: [1.0, 5.0]}),
        ("ward", "ps_mw"): pd.DataFrame({0: [0.4, 0.6]}),
        ("storage", "q_mvar"): pd.DataFrame({0: [0.1, 0.2]}),
    }
    x, steps = profile_inputs(net, problem, profiles)
    assert steps == [0, 1]
    for row in steps:
        there = copy.deepcopy(net)
        there.load.loc[1, "scaling"] = profiles["load", "scaling"].at[row, 1]
        there.sgen.loc[1, "p_mw"] = profiles["sgen", "p_mw"].at[row, 1]
        there.ward.loc[0, "ps_mw"] = profiles["ward", "ps_mw"].at[row, 0]
        there.storage.loc[0, "q_mvar"] = profiles["storage", "q_mvar"].at[row, 0]
        np.testing.assert_allclose(x[row], fb.from_pandapower(there).nominal, atol=1e-12)


def test_profiles_that_do_not_fit_are_all_named() -> None:
    net = many_kinds()
    problem = fb.from_pandapower(net)
    profiles = {
        ("gen", "max_p_mw"): pd.DataFrame({0: [1.0, 2.0]}),
        ("load", "p_mw"): pd.DataFrame({0: [1.0, np.nan], 3: [1.0, 1.0], 99: [1.0, 1.0]}),
        ("sgen", "p_mw"): pd.DataFrame({1: [1.0]}),
    }
    with pytest.raises(fb.ProblemError) as error:
        profile_inputs(net, problem, profiles)
    assert {fault.where for fault in error.value.faults} == {
        "gen.max_p_mw", "load.p_mw 0", "load.p_mw 3", "load.p_mw 99", "sgen.p_mw",
    }  # fmt: skip


def test_controllers_of_other_kinds_are_named() -> None:
    from pandapower.control import ContinuousTapControl

    net = many_kinds()
    ContinuousTapControl(net, 0, 1.0)
    with pytest.raises(fb.ProblemError, match="controller 0: is a ContinuousTapControl"):
        read_profiles(net)


def test_a_net_without_profiles_and_a_table_that_is_not_there(run: tuple[Any, fb.TimeSeries]) -> None:
    with pytest.raises(fb.FeasiblyError, match="no profiles"):
        fb.run_timeseries(two_bus())
    net, series = run
    with pytest.raises(fb.FeasiblyError, match=r"there is no res_bus\.colour"):
        series.answer.to_pandapower(net, [("res_bus", "colour")])
