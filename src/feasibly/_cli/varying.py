"""What varies beside loads, and how it is drawn: options of `label` and what they mean."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feasibly.problem.errors import FeasiblyError

if TYPE_CHECKING:
    from feasibly.problem.drawing import Draws


class CostDraws(StrEnum):
    """How costs are drawn."""

    scaled = "scaled"
    permuted = "permuted"


class RatingDraws(StrEnum):
    """How ratings are drawn."""

    line = "line"
    season = "season"


Vary = Annotated[
    str | None,
    typer.Option(
        "--vary",
        metavar="WHAT",
        help="What the input is made of, from load,branch,generator,cost,rating; load unless told.",
    ),
]
Outages = Annotated[
    str | None,
    typer.Option(
        "--outages",
        metavar="HOW",
        help="single (unless told), each in turn, none, how many at a time, or the probability of each.",
    ),
]
Islands = Annotated[
    bool, typer.Option("--islands", help="Parts that outages split off balance each on its own.")
]
CostDrawn = Annotated[
    CostDraws | None,
    typer.Option("--cost-draws", help="Costs scaled generator by generator, or changing places."),
]
CostSpread = Annotated[
    float | None,
    typer.Option(
        "--cost-spread", metavar="SHARE", min=0.0, help="How far costs are scaled; 0.3 unless told."
    ),
]
RatingDrawn = Annotated[
    RatingDraws | None,
    typer.Option("--rating-draws", help="Ratings scaled line by line, or all of a row alike."),
]
RatingSpread = Annotated[
    float | None,
    typer.Option(
        "--rating-spread", metavar="SHARE", min=0.0, help="How far ratings are scaled; 0.2 unless told."
    ),
]


def chosen_draws(vary: str | None, **given: Any) -> tuple[tuple[str, ...], Draws | None]:
    """What varies and how, from the options that were given."""
    from feasibly.problem.drawing import Draws, check_vary

    varied = ("load",) if vary is None else check_vary([part.strip() for part in vary.split(",")])
    asked = {key: value for key, value in given.items() if value not in (None, False)}
    needs = {"outages": ("branch", "generator"), "islands": ("branch",)}
    for key in asked:
        wanted = needs.get(key, (key.split("_")[0].removesuffix("s"),))
        if not set(wanted) & set(varied):
            option = "--" + {"costs": "cost-draws", "ratings": "rating-draws"}.get(key, key.replace("_", "-"))
            raise FeasiblyError(f"{option} says how {' or '.join(wanted)} is drawn; name it in --vary too")
    if "outages" in asked:
        asked["outages"] = _outages(asked["outages"])
    return varied, Draws(**asked) if asked else None


def _outages(text: str) -> str | int | float:
    if text.isdigit():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text
