"""The compiled loops ("kernels") that advance all lanes: one for programs, and those of linear algebra.

They are written in LLVM's own language (`_program_loop`, `_linear_loops`), where a vector of lanes is a type, and
compiled for this very processor in less than a tenth of a second; nothing is kept on disk. All of them work on one
workspace of vectors, and what they read (see `program` and `factors`) are slots of it.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable

import numpy as np
from llvmlite import binding, ir
from numpy.typing import NDArray

from feasibly.solve.lanes._ir import ALIGNMENT
from feasibly.solve.lanes._linear_loops import LinearLoops
from feasibly.solve.lanes._program_loop import ProgramLoop

WIDTHS = 8, 16, 32
"""Lanes: rows at a time. Eight is what one AVX-512 register holds, or two AVX registers; more pays for small problems,
whose operations take less time than asking for them."""

Workspace = NDArray[np.float64]
"""`(slots, lanes)`."""
Slots = NDArray[np.int32]


def workspace(size: int, width: int) -> Workspace:
    """`(size, width)` zeros that begin where a vector may."""
    raw = np.zeros(size * width + ALIGNMENT // 8)
    first = (-raw.ctypes.data % ALIGNMENT) // 8
    return raw[first : first + size * width].reshape(size, width)


class Kernels:
    """The compiled loops for lanes of one width. Whoever calls them keeps the arrays at the addresses alive."""

    def __init__(self, width: int) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        target = binding.Target.from_default_triple().create_target_machine(
            cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
        )
        parsed = binding.parse_assembly(_assembly(width))
        parsed.verify()
        builder = binding.create_pass_builder(target, binding.create_pipeline_tuning_options(speed_level=2))
        builder.getModulePassManager().run(parsed, builder)
        self._engine = binding.create_mcjit_compiler(parsed, target)
        self._engine.finalize_object()
        self.run = self._function("run", 3)
        """`(runs, number of runs, workspace)`: see `program.Program`."""
        self.factor = self._function("factor", 5)
        """`(columns, targets, size, values, inverses)`: see `factors.Factors`."""
        self.substitute = self._function("substitute", 6)
        """`(columns, rows, size, values, inverses, right-hand side)`, which the solution replaces."""
        self.forward = self._function("forward", 5)
        self.backward = self._function("backward", 6)
        """`(columns, rows, size, values, [inverses,] right-hand side)`: see `triangular.Triangles`."""

    def _function(self, name: str, arguments: int) -> Callable[..., None]:
        kind = ctypes.CFUNCTYPE(None, *([ctypes.c_void_p] * arguments))
        return kind(self._engine.get_function_address(name))


def _assembly(width: int) -> str:
    module = ir.Module("lanes")
    ProgramLoop(module, width).write()
    LinearLoops(module, width).write()
    return str(module)


_LOCK = threading.Lock()


def kernels(width: int) -> Kernels:
    """Those of this process."""
    with _LOCK:
        return _kernels(width)


@functools.cache
def _kernels(width: int) -> Kernels:
    return Kernels(width)
