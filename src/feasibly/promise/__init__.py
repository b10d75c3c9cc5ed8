"""What may be promised about a predictor's errors: arrays in, frozen records out, whoever made the predictor.

- The mean error, from M errors in [0, R]: `betting` (the narrowest that knows R alone), `hoeffding`,
  `empirical_bernstein`, `maurer_pontil`, `bernstein`, and `mpv_bernstein`, which rests on a hypothesis that
  `measure_alpha` tests.
- The next instance: `calibrate` and `calibrate_scores` (split conformal), `jackknife_plus` and `cv_plus`
  (from the training labels).
- Whether a promise may be attached to a batch of inputs: `learn_reference`, `check_batch`.

`docs/guarantees.md` says in words what each promises, what it assumes and when it is void.
"""

from feasibly.promise._check import PromiseError, TooFewLabelsError, labels_needed
from feasibly.promise._plain import to_plain
from feasibly.promise.betting import betting
from feasibly.promise.conformal import Region, ScoreLimit, calibrate, calibrate_scores, coverage_range
from feasibly.promise.cross import CrossIntervals, cv_plus, jackknife_plus
from feasibly.promise.exchange import BatchCheck, Outside, Reference, check_batch, learn_reference
from feasibly.promise.mean import (
    MeanBound,
    bernstein,
    empirical_bernstein,
    hoeffding,
    maurer_pontil,
    mpv_bernstein,
)
from feasibly.promise.variance import (
    AlphaReport,
    Spread,
    measure_alpha,
    measure_spread,
)

__all__ = [
    "AlphaReport",
    "BatchCheck",
    "CrossIntervals",
    "MeanBound",
    "Outside",
    "PromiseError",
    "Reference",
    "Region",
    "ScoreLimit",
    "Spread",
    "TooFewLabelsError",
    "bernstein",
    "betting",
    "calibrate",
    "calibrate_scores",
    "check_batch",
    "coverage_range",
    "cv_plus",
    "empirical_bernstein",
    "hoeffding",
    "jackknife_plus",
    "labels_needed",
    "learn_reference",
    "maurer_pontil",
    "measure_alpha",
    "measure_spread",
    "mpv_bernstein",
    "to_plain",
]
