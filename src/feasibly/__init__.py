"""feasibly: optimization proxies that obey the constraints and say how far they can be trusted.

Names are imported on first use, so that `import feasibly` costs nothing and pulls in no solver, plotting or cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from feasibly._version import __version__

if TYPE_CHECKING:
    from feasibly.answer.ladder import ANSWERS, Answer, AnswerOutcome
    from feasibly.certificate import Certificate
    from feasibly.certificate.making.certify import certify
    from feasibly.data.dataset import Dataset
    from feasibly.data.gridfm import import_gridfm
    from feasibly.data.label import label
    from feasibly.data.opfdata import import_opfdata
    from feasibly.data.pglearn import import_pglearn
    from feasibly.evaluation import Evaluation, evaluate, evaluate_proxy
    from feasibly.fitting import fit
    from feasibly.interop.pandapower import from_pandapower
    from feasibly.interop.pypsa import from_pypsa
    from feasibly.interop.sources import load_problem
    from feasibly.measure.metrics import Metrics
    from feasibly.problem.core import Problem
    from feasibly.problem.drawing import Draws
    from feasibly.problem.errors import FeasiblyError, ProblemError
    from feasibly.problem.nonconvex import nonconvex
    from feasibly.problem.sampling import sample
    from feasibly.proxy import Proxy
    from feasibly.report.compare import Comparison, compare
    from feasibly.report.html import write_report
    from feasibly.runtimes.files import Exported, export
    from feasibly.screening.run import Screening, screen
    from feasibly.timeseries import TimeSeries, run_timeseries
    from feasibly.train.registry import DEFAULT_METHOD, METHODS, Method, register

_HOMES = {
    "ANSWERS": "feasibly.answer.ladder",
    "Answer": "feasibly.answer.ladder",
    "AnswerOutcome": "feasibly.answer.ladder",
    "Certificate": "feasibly.certificate",
    "certify": "feasibly.certificate.making.certify",
    "Dataset": "feasibly.data.dataset",
    "label": "feasibly.data.label",
    "import_gridfm": "feasibly.data.gridfm",
    "import_opfdata": "feasibly.data.opfdata",
    "import_pglearn": "feasibly.data.pglearn",
    "from_pandapower": "feasibly.interop.pandapower",
    "from_pypsa": "feasibly.interop.pypsa",
    "Metrics": "feasibly.measure.metrics",
    "Problem": "feasibly.problem.core",
    "Draws": "feasibly.problem.drawing",
    "FeasiblyError": "feasibly.problem.errors",
    "ProblemError": "feasibly.problem.errors",
    "load_problem": "feasibly.interop.sources",
    "nonconvex": "feasibly.problem.nonconvex",
    "sample": "feasibly.problem.sampling",
    "DEFAULT_METHOD": "feasibly.train.registry",
    "METHODS": "feasibly.train.registry",
    "Method": "feasibly.train.registry",
    "register": "feasibly.train.registry",
    "Screening": "feasibly.screening.run",
    "screen": "feasibly.screening.run",
    "Evaluation": "feasibly.evaluation",
    "Proxy": "feasibly.proxy",
    "evaluate": "feasibly.evaluation",
    "evaluate_proxy": "feasibly.evaluation",
    "Exported": "feasibly.runtimes.files",
    "export": "feasibly.runtimes.files",
    "TimeSeries": "feasibly.timeseries",
    "run_timeseries": "feasibly.timeseries",
    "Comparison": "feasibly.report.compare",
    "compare": "feasibly.report.compare",
    "write_report": "feasibly.report.html",
    "fit": "feasibly.fitting",
}

__all__ = [
    "ANSWERS",
    "DEFAULT_METHOD",
    "METHODS",
    "Answer",
    "AnswerOutcome",
    "Certificate",
    "Comparison",
    "Dataset",
    "Draws",
    "Evaluation",
    "Exported",
    "FeasiblyError",
    "Method",
    "Metrics",
    "Problem",
    "ProblemError",
    "Proxy",
    "Screening",
    "TimeSeries",
    "__version__",
    "certify",
    "compare",
    "evaluate",
    "evaluate_proxy",
    "export",
    "fit",
    "from_pandapower",
    "from_pypsa",
    "import_gridfm",
    "import_opfdata",
    "import_pglearn",
    "label",
    "load_problem",
    "nonconvex",
    "register",
    "run_timeseries",
    "sample",
    "screen",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'feasibly' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
