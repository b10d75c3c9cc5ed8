"""What an answer is made of."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.core import Problem
from feasibly.problem.drawing import Refusal
from feasibly.problem.duals import unique
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.families import grid_of
from feasibly.problem.flows import Flows, compute_flows
from feasibly.problem.grid import Grid
from feasibly.problem.point import Duals
from feasibly.problem.prices import PriceParts, nodal_prices, price_parts

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class AnswerOutcome(enum.Enum):
    """What became of a row; `advice` says what to do about it and is empty when there is nothing to do."""

    advice: str

    OK = (0, "")
    VIOLATED = (
        1,
        "This answer breaks a constraint by more than the tolerance; ask for a higher rung: conditioned, polished, "
        "solved, or auto, which climbs by itself.",
    )
    OUTSIDE = (
        2,
        "This input lies outside the range the proxy was made for; the answer may be far off. Ask for auto or solved, "
        "or label and train on a wider range.",
    )
    INFEASIBLE = (3, "No answer to this input satisfies the constraints; check the input.")
    UNSOLVED = (
        4,
        "The solver found no answer to this input and no proof that there is none; check the input.",
    )
    NOT_FINITE_INPUT = (5, "The input holds NaN or infinite values; mend or drop this row.")
    ISLANDED = (
        6,
        "The outages of this input split the grid, and `warnings` names the buses cut off; leave it out, or let the "
        "parts balance each on its own (islands=True).",
    )

    def __new__(cls, code: int, advice: str) -> AnswerOutcome:
        """A member whose value is its code."""
        member = object.__new__(cls)
        member._value_ = code
        member.advice = advice
        return member


class Remark(str):
    """A sentence about an answer, or about one of its rows, which then stands in it: `row 3: it is too late`."""

    row: int | None
    """The row it is about."""
    _around: tuple[str, str]

    def __new__(cls, before: str, row: int | None = None, after: str = "") -> Remark:
        """A sentence, or one with a row between two parts of it."""
        made = super().__new__(cls, before if row is None else f"{before} {row}{after}")
        made.row, made._around = row, (before, after)
        return made

    def at(self, row: int) -> Remark:
        """The same of another row."""
        before, after = self._around
        return Remark(before, row, after)


def row_outcomes(
    holds: Mask,
    outside: Mask,
    finite: Mask,
    refused: Mapping[int, Refusal],
    verdicts: Sequence[AnswerOutcome | None] | None = None,
    rungs: Sequence[str] | None = None,
) -> tuple[AnswerOutcome, ...]:
    """The one outcome of each row; of several that apply, the first of these.

    1. The input is not finite. 2. The problem refuses it. 3. The rung's own verdict: no solution, or none found.
    4. The input is outside the range, unless the solver answered: said before 5, for it is why. 5. A constraint is
    broken beyond the tolerance. 6. OK.

    Args:
        holds: whether every constraint holds to the tolerance; false for NaN.
        outside: inputs outside the range that the proxy was made for.
        finite: inputs that are numbers.
        refused: rows that have no answer by their very nature.
        verdicts, rungs: what each row's rung says of it, and which that was, where they may differ.
    """
    found = np.full(len(holds), AnswerOutcome.OK, dtype=object)
    found[~holds] = AnswerOutcome.VIOLATED
    elsewhere = (
        outside if rungs is None else outside & np.array([rung != "solved" for rung in rungs], dtype=bool)
    )
    found[elsewhere] = AnswerOutcome.OUTSIDE
    for i, verdict in enumerate(verdicts or ()):
        if verdict is not None:
            found[i] = verdict
    for i, refusal in refused.items():
        found[i] = AnswerOutcome[refusal.kind.upper()]
    found[~finite] = AnswerOutcome.NOT_FINITE_INPUT
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Answer:
    """Answers to a batch of inputs, one row each. A row without an answer (infeasible, not finite) is NaN.

    Everything beside the fields is computed when it is asked for: what binds, and for grids prices, flows and loadings.
    `to_xarray` and `to_pandas` give all of it by name.
    """

    y: Array
    """The answers, `(rows, n_outputs)`, in the problem's units."""
    std: Array
    """Standard deviation of every output as the model believes it, given the constraints from `conditioned` on
    (not on sparse operators); zero for what `auto` and `solved` had solved."""
    objective: Array
    """The cost of each answer, `(rows,)`."""
    max_equality: Array
    """The largest violation of any equality, `(rows,)`, in float64."""
    max_inequality: Array
    """The largest violation of any inequality or bound, `(rows,)`, in float64 and natural units."""
    outcome: tuple[AnswerOutcome, ...]
    """What became of each row; its `advice` says what to do."""
    rung: tuple[str, ...]
    """Which answer of the ladder each row got."""
    seconds: float
    """Wall clock of the whole batch."""
    lower: Array | None = None
    """With a certificate, the lower ends of the promised intervals of the optimal outputs; NaN where the promise is
    void. (Not to be confused with `lower_bound`, which is one of the cost.)"""
    upper: Array | None = None
    """With a certificate, the upper ends of the promised intervals."""
    gap_limit: Array | None = None
    """With a certificate, the promised limit on the gap in per cent, `(rows,)`."""
    price_limit: Array | None = None
    """With a certificate of a grid, how far the price at any bus is off at most, as promised, `(rows,)`."""
    warnings: tuple[str, ...] = field(default=())
    """Sentences about the batch; those about one row are a `Remark`, which knows it."""
    x: Array | None = None
    """The inputs that were answered, `(rows, n_inputs)`."""
    multipliers: Duals | Callable[[], Duals] | None = field(default=None, repr=False)
    """`duals`, or what computes them when somebody asks."""
    lower_bound: Array | None = None
    """With `prove=True`, a cost that no feasible answer to the same input can undercut, `(rows,)`: proven, not
    statistical. Infinite where there is provably no feasible answer, minus infinity where nothing was found."""
    proven_gap_percent: Array | None = None
    """With `prove=True`, how far the answer's cost is above `lower_bound`, in per cent of that cost: no feasible answer
    saves a larger share of it."""
    problem: Problem | None = field(default=None, repr=False)
    """What was optimised, and with it every name."""
    level: tuple[str, ...] = field(default=(), repr=False)
    """What answered each row: `shared`, `far-belief`, `restart` or `optimal` (shared operators), `row` (the row's own
    factorisations) or `solver`; empty where nothing converged and for answers that do not iterate."""
    steps: NDArray[np.int64] | None = field(default=None, repr=False)
    """Steps on shared operators that each row took."""
    factorisations: NDArray[np.int64] | None = field(default=None, repr=False)
    """How often each row's own optimality system was factored."""
    standing: Any = field(default=None, repr=False)
    """Where the iteration stands in each row, for who goes on with those that have not converged (`Ladder.answer`)."""

    def __len__(self) -> int:
        return len(self.y)

    @functools.cached_property
    def duals(self) -> Duals | None:
        """Multipliers of every constraint, from `conditioned` on; signs and units as `Dataset.duals`.

        They are those of the optimum next to each answer, found when first asked for (which costs about as much as the
        answers): where the cost is flat a conditioned answer may rest some way from it. NaN for rows without an answer.
        """
        found = self.multipliers() if callable(self.multipliers) else self.multipliers
        missing = np.asarray(~np.isfinite(np.asarray(self.y)).all(axis=1))
        if found is None or not missing.any():
            return found
        return found.without(missing)

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Which rows may be used as they are."""
        return np.array([outcome is AnswerOutcome.OK for outcome in self.outcome], dtype=bool)

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """What became of each row, by name, as in `Dataset.outcome_names`."""
        return tuple(outcome.name for outcome in self.outcome)

    def outcomes(self) -> dict[str, int]:
        """How many rows ended how, by name."""
        return {kind.name: n for kind in AnswerOutcome if (n := sum(o is kind for o in self.outcome))}

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the columns of `x`."""
        return self._known.input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the columns of `y`."""
        return self._known.output_names

    @functools.cached_property
    def unique_duals(self) -> NDArray[np.bool_]:
        """Which rows have one set of multipliers only, `(rows,)`: constraints that bind do not depend on each other.

        Takes a dense factorisation a row. Elsewhere `duals` and `prices` are one right choice of several.
        """
        return unique(self._known, self._inputs, self.y)

    # ---- grids -----------------------------------------------------------------------------------------

    @property
    def prices(self) -> Array:
        """Active prices at every bus in file order, currency per MWh: `(rows, buses)`.

        What one more MWh of load there adds to the least cost. Where multipliers are not unique (constraints that
        depend on each other bind), this is one of several right prices.
        """
        return self._prices[0]

    @property
    def reactive_prices(self) -> Array:
        """Reactive prices at every bus, currency per Mvarh: `(rows, buses)`."""
        return self._prices[1]

    @functools.cached_property
    def price_parts(self) -> PriceParts:
        """Active prices as `energy + losses + congestion`, each `(rows, buses)`."""
        return price_parts(self._known, self._grid, self._inputs, self.y, self.prices)

    @functools.cached_property
    def flows(self) -> Flows:
        """Power at both ends of every branch, per unit, and its loading in per cent: `(rows, branches)` each."""
        return compute_flows(self._known, self._grid, self._inputs, self.y)

    @property
    def loading(self) -> Array:
        """How loaded every branch is, in per cent of its tightest limit; NaN where it has none."""
        return self.flows.loading

    @functools.cached_property
    def _prices(self) -> tuple[Array, Array]:
        grid = self._grid
        if self.duals is None:
            raise FeasiblyError(
                f"prices are made of multipliers, and a {self.rung[0] if self.rung else 'mean'} answer has none; "
                "ask for conditioned, polished, solved or auto"
            )
        return nodal_prices(grid, self.duals.equality)

    # ---- other forms -----------------------------------------------------------------------------------

    @property
    def binding(self) -> pd.DataFrame:
        """The limits that each answer lies on, one line each.

        Columns: `row`; `component` and `id` (a generator, bus or branch of a grid as its file numbers it, else an
        output by name or an inequality by position); `limit`; `slack`, how much room is left in natural units; and
        `multiplier`, what one unit more of the limit would save (NaN without multipliers).
        """
        from feasibly.answer.forms import binding

        return binding(self)

    def to_xarray(self) -> xr.Dataset:
        """Everything by name: inputs and outputs, multipliers, and for grids prices by bus and flows by branch."""
        from feasibly.answer.forms import to_xarray

        return to_xarray(self)

    def to_pandas(self, *, std: bool = False, duals: bool = False, grid: bool = True) -> pd.DataFrame:
        """One line an instance: outputs by name, cost, violations, outcome, rung, effort and promised intervals.

        Args:
            std: also the standard deviation of every output, `std_pg_1`.
            duals: also the multiplier of every constraint, `dual_p_balance_1`.
            grid: for grids also prices (`price_1`, with multipliers) and flows (`p_from_1`, `loading_1`).

        Examples:
            With an answer of `fit`'s example:

            >>> list(answer.to_pandas().columns[:6])
            ['y0', 'y1', 'objective', 'max_equality', 'max_inequality', 'outcome']
        """
        import pandas as pd

        from feasibly.answer.forms import columns

        return pd.DataFrame(dict(columns(self, std=std, duals=duals, grid=grid, effort=True)))

    def write_pandapower(self, net: Any, row: int = 0) -> None:
        """Fill the result tables of the pandapower net that the problem was made of with one row, as `runopp` does.

        `res_bus` (with `lam_p` and `lam_q`, NaN for answers without multipliers), `res_gen`, `res_line`, `res_cost`
        and all the others; what is given in the net stays as it is, also where the row's loads are others.
        """
        from feasibly.interop._pandapower_write import write_pandapower

        write_pandapower(self, net, row)

    def write_pypsa(self, network: Any, row: int = 0, snapshot: Any = None) -> None:
        """Fill one snapshot of the PyPSA network that the problem was made of with one row, as its power flow does.

        Voltages, powers and flows go where `network.pf()` puts them, nodal prices into `buses_t.marginal_price`. The
        first snapshot unless told; what is given in the network stays as it is.
        """
        from feasibly.interop._pypsa_write import write_pypsa

        write_pypsa(self, network, row, snapshot)

    def to_pandapower(
        self, net: Any, log: Iterable[tuple[str, str]] | None = None, index: Sequence[Any] | None = None
    ) -> dict[str, pd.DataFrame]:
        """All rows as pandapower's time series tables: `{"res_bus.vm_pu": table, ...}`, a line a row.

        Args:
            net: the pandapower net that the problem was made of; it is not changed.
            log: pairs of result table and column, as pandapower's output writer takes them; what it keeps unless told.
            index: the time steps, in place of 0, 1, 2...
        """
        from feasibly.interop._pandapower_series import LOG, tabulate

        return tabulate(self, net, LOG if log is None else log, index)

    @property
    def _known(self) -> Problem:
        if self.problem is None:
            raise FeasiblyError(
                "this answer was put together without its problem, so nothing in it has a name"
            )
        return self.problem

    @property
    def _grid(self) -> Grid:
        grid = grid_of(self._known)
        if grid is None:
            raise FeasiblyError(
                f"{self._known.name} is not a grid, so it has no prices and no flows; its multipliers are in `duals`"
            )
        return grid

    @property
    def _inputs(self) -> Array:
        if self.x is None:
            raise FeasiblyError("this answer was put together without its inputs, which this needs")
        return self.x
