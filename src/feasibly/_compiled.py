"""Compiled programs outlive the process: what one run has compiled, the next one on this machine reads.

Compiling is most of what a first answer waits for. JAX can keep what it compiled; here is where, for how long, and when
not. A setting of JAX's own (`JAX_COMPILATION_CACHE_DIR`, or `jax.config`) is left as it is. `FEASIBLY_CACHE=off` keeps
nothing, and `FEASIBLY_CACHE=FOLDER` keeps it there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import stat
import sys
from pathlib import Path
from typing import Any

VARIABLE = "FEASIBLY_CACHE"
OFF = ("off", "0", "no", "none")
MOST = 256 * 2**20
"""Bytes that are kept, of all machines and versions together. A model of 118 buses takes about one million."""


@functools.cache
def keep_compiled() -> Path | None:
    """Have JAX keep what it compiles from here on, once a process; the folder, or `None` where nothing is kept."""
    import jax

    wanted = os.environ.get(VARIABLE, "").strip()
    if wanted.lower() in OFF or _is_set(jax.config):
        return None
    home = Path(wanted) if wanted else cache_home() / "feasibly" / "compiled"
    folder = home / _kind()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(folder):
            return None
        prune(home, MOST)
    except OSError:  # a home that cannot be written to is no reason to fail
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder


def _is_set(config: Any) -> bool:
    """Whether whoever runs this process has made up their mind already."""
    return bool(config.jax_compilation_cache_dir) or not config.jax_enable_compilation_cache


def cache_home() -> Path:
    """Where programs of this user keep what can be made again."""
    given = os.environ.get("XDG_CACHE_HOME")
    if given:
        return Path(given)
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def prune(home: Path, most: int) -> None:
    """Remove what was not used for longest until no more than `most` bytes are left.

    A file that another process removed first, or still reads, is none of our business: a reader keeps what it opened.
    """
    found = []
    for path in home.glob("*/*"):
        with contextlib.suppress(OSError):
            known = path.stat()
            if stat.S_ISREG(known.st_mode):
                found.append((max(known.st_atime, known.st_mtime), known.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found, key=lambda entry: entry[0]):
        if total <= most:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def _kind() -> str:
    """Names the processor and the compiler: homes are shared between machines, and code is not."""
    from importlib.metadata import version

    words = [platform.machine(), platform.processor(), platform.system()]
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        words += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    mark = hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]
    return f"jaxlib-{version('jaxlib')}-{mark}"


def _is_ours(folder: Path) -> bool:
    """Whether nobody else can write there: what is read from it is run."""
    if not hasattr(os, "getuid"):
        return True
    known = folder.stat()
    return known.st_uid == os.getuid() and not known.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
