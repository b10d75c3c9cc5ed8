"""Small pandapower nets, written here."""

from __future__ import annotations

from typing import Any


def two_bus() -> Any:
    """An external grid, a line, a load: nothing but what every net has."""
    import pandapower as pp

    net = pp.create_empty_network(name="two", sn_mva=10.0)
    a, b = (pp.create_bus(net, 20.0, min_vm_pu=0.9, max_vm_pu=1.1) for _ in range(2))
    pp.create_ext_grid(net, a, min_p_mw=-50, max_p_mw=50, min_q_mvar=-50, max_q_mvar=50)
    pp.create_line_from_parameters(net, a, b, 5.0, 0.2, 0.3, 200.0, 0.4, max_loading_percent=100.0)
    pp.create_load(net, b, 4.0, 1.0, controllable=False)
    pp.create_poly_cost(net, 0, "ext_grid", cp1_eur_per_mw=1.0)
    return net


def many_kinds(shift: float = 0.0) -> Any:
    """Every kind of element that can be modelled, switches of every sort, bus numbers with holes.

    `shift` is that of the transformers between 110 and 20 kV in degrees; `runopp` does not converge with 150.
    """
    import pandapower as pp

    net = pp.create_empty_network(name="many", sn_mva=50.0)
    high = [pp.create_bus(net, 110.0, index=i, min_vm_pu=0.95, max_vm_pu=1.08) for i in (3, 4, 7, 8)]
    middle = [pp.create_bus(net, 20.0, index=i, min_vm_pu=0.93, max_vm_pu=1.07) for i in (10, 11, 12, 15)]
    low = pp.create_bus(net, 10.0, index=20, min_vm_pu=0.9, max_vm_pu=1.1)
    pp.create_ext_grid(
        net, high[0], vm_pu=1.02, va_degree=7.0, min_p_mw=0, max_p_mw=90, min_q_mvar=-60, max_q_mvar=60
    )
    for i, (f, t, km) in enumerate(((0, 1, 30.0), (1, 2, 25.0), (0, 2, 40.0), (2, 3, 10.0))):
        pp.create_line_from_parameters(
            net, high[f], high[t], km, 0.06, 0.14, 9.0, 0.5, max_loading_percent=80.0 - 20 * (i == 2),
            parallel=1 + (i == 0), g_us_per_km=0.1,
        )  # fmt: skip
    pp.create_line_from_parameters(
        net, high[1], high[3], 12.0, 0.06, 0.14, 9.0, 0.5, max_loading_percent=80.0
    )
    pp.create_switch(net, high[3], 4, et="l", closed=False)  # an open end: the line hangs on its other bus
    pp.create_transformer_from_parameters(
        net, high[2], middle[0], 40.0, 110.0, 20.0, 0.4, 11.0, 25.0, 0.05, shift_degree=shift, tap_side="hv",
        tap_neutral=0, tap_min=-9, tap_max=9, tap_step_percent=1.5, tap_pos=-2, max_loading_percent=90.0,
        tap_changer_type="Ratio",
    )  # fmt: skip
    pp.create_transformer3w_from_parameters(
        net, high[1], middle[1], low, 110.0, 20.0, 10.0, 40.0, 25.0, 15.0, 10.4, 10.5, 10.7, 0.28, 0.3, 0.35, 20.0,
        0.1, tap_side="hv", tap_neutral=0, tap_min=-8, tap_max=8, tap_step_percent=1.25, tap_pos=1,
        max_loading_percent=95.0, shift_mv_degree=shift, tap_changer_type="Ratio",
    )  # fmt: skip
    pp.create_switch(net, middle[0], middle[2], et="b", closed=True)  # one bus
    pp.create_switch(net, middle[1], middle[2], et="b", closed=False)  # two buses
    pp.create_line_from_parameters(
        net, middle[2], middle[3], 4.0, 0.16, 0.12, 270.0, 0.3, max_loading_percent=100
    )
    pp.create_impedance(net, middle[3], middle[1], 0.05, 0.12, 50.0)
    pp.create_gen(
        net, high[3], 20.0, 1.03, min_p_mw=5, max_p_mw=60, min_q_mvar=-25, max_q_mvar=25, controllable=True
    )
    pp.create_gen(
        net, high[1], 6.0, 1.01, min_p_mw=0, max_p_mw=9, min_q_mvar=-9, max_q_mvar=9, in_service=False
    )
    pp.create_sgen(
        net, middle[3], 4.0, 0.5, controllable=True, min_p_mw=0, max_p_mw=8, min_q_mvar=-2, max_q_mvar=2
    )
    pp.create_sgen(net, low, 3.0, 0.4, scaling=0.9, controllable=False)
    pp.create_load(net, high[1], 22.0, 6.0, controllable=False)
    pp.create_load(net, middle[2], 12.0, 3.0, scaling=1.1, controllable=False)
    pp.create_load(net, middle[1], 5.0, 1.0, in_service=False, controllable=False)
    pp.create_load(
        net, low, 4.0, 1.0, controllable=True, min_p_mw=2, max_p_mw=4, min_q_mvar=0.5, max_q_mvar=1.0
    )
    pp.create_storage(net, middle[1], 1.5, 10.0, controllable=False)
    pp.create_shunt(net, high[3], q_mvar=-4.0, p_mw=0.1, step=2)
    pp.create_ward(net, middle[3], 1.0, 0.3, 0.2, -0.1)
    pp.create_motor(net, low, pn_mech_mw=0.5, cos_phi=0.9, efficiency_percent=95.0, loading_percent=80.0)
    for element, table, c1, c2 in (
        (0, "ext_grid", 40.0, 0.2), (0, "gen", 25.0, 0.3), (0, "sgen", 12.0, 0.0), (2, "load", -30.0, 0.0),
    ):  # fmt: skip
        pp.create_poly_cost(
            net, element if table != "load" else 3, table, c1, cp2_eur_per_mw2=c2, cp0_eur=5.0
        )
    return net
