"""What every endpoint shares: the models, the queue, the limits, the counters."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import Callable

from feasibly.problem.errors import FeasiblyError
from feasibly.serve.batching import Batcher
from feasibly.serve.bodies import Intake
from feasibly.serve.drawings import Drawings
from feasibly.serve.limits import Limits
from feasibly.serve.meters import Meters
from feasibly.serve.refusal import Refused
from feasibly.serve.shelf import Served, Shelf

log = logging.getLogger("feasibly.serve")


class Desk:
    """Made once a server."""

    def __init__(self, shelf: Shelf, limits: Limits, drawings: Drawings | None = None) -> None:
        self.shelf = shelf
        self.limits = limits
        self.drawings = drawings or Drawings()
        self.intake = Intake(limits)
        self.meters = Meters()
        self.batcher = Batcher(limits, self.meters)
        self.meters.waiting.set_function(lambda: self.batcher.waiting)
        self.stopping = False
        self._opened = False
        self._loading = asyncio.Lock()
        self._warming: threading.Thread | None = None

    async def open(self, failed: Callable[[FeasiblyError], None]) -> None:
        """Load everything named at the start, one after the other; `failed` hears of the first that cannot be."""
        names = self.shelf.names()
        self.shelf.loading.update(names)
        try:
            for name in names:
                await self._load(name)
                served = self.shelf.served[name]
                log.info("%s is ready, warm after %.1f s", name, served.warm_seconds)
            self._opened = True
        except FeasiblyError as error:
            failed(error)
        except Exception as error:
            log.error("a model could not be loaded", exc_info=error)
            failed(FeasiblyError(f"a model could not be loaded: {type(error).__name__}: {error}"))

    def close(self) -> None:
        """Finish what was taken; and what is being compiled, which would take the interpreter down with it."""
        self.batcher.join(self.limits.stopping_seconds)
        if self._warming is not None:
            self._warming.join(self.limits.stopping_seconds)

    def not_ready(self) -> str:
        """Why requests should go elsewhere; empty when they need not."""
        if self.stopping:
            return "the server is stopping"
        return "" if self._opened else "models are being loaded; ask again in a moment"

    def find(self, name: str) -> Served:
        """A loaded model by its name."""
        served = self.shelf.served.get(name)
        if served is not None:
            return served
        if name in self.shelf.loading or (not self._opened and name in self.shelf.names()):
            raise Refused(503, f"{name} is being loaded; ask again in a moment", retry_after=1)
        if name in self.shelf.names():
            raise Refused(
                404,
                f"{name} is not loaded; load it with POST /v2/repository/models/{name}/load, then ask again",
            )
        loaded = ", ".join(sorted(self.shelf.served)) or "none"
        raise Refused(404, f"there is no model {name[:80]!r}; loaded: {loaded}")

    async def load(self, name: str) -> None:
        """Load a model, or load it again; the old one answers until the new one is warm."""
        if name not in self.shelf.names():
            raise Refused(404, f"there is no model {name[:80]!r} among the folders named at the start")
        try:
            await self._load(name)
        except FeasiblyError as error:
            raise Refused(422, str(error)) from None

    async def _load(self, name: str) -> None:
        async with self._loading:
            self.shelf.loading.add(name)
            try:
                served = await _beside(self.shelf.open, name)
            except Exception as error:
                self.shelf.troubles[name] = str(error)
                raise
            finally:
                self.shelf.loading.discard(name)
            self.shelf.put(served)
            self.meters.loaded.labels(name).set(1)
            if self.shelf.warms and not served.alone:
                self._warming = threading.Thread(
                    target=_warm, args=(served,), name=f"warming {name}", daemon=True
                )
                self._warming.start()

    def unload(self, name: str) -> None:
        """Let go of a model."""
        if not self.shelf.remove(name):
            raise Refused(404, f"{name[:80]!r} is not loaded")
        self.meters.loaded.labels(name).set(0)
        gc.unfreeze()  # what was put aside for it may go


def _warm(served: Served) -> None:
    served.warm_alone()
    # Python looks through all objects for cycles now and then, and two hundred thousand of them, which stay as long as
    # the server does, take it a quarter of a second in which nobody is answered.
    gc.collect()
    gc.freeze()


async def _beside(open_model: Callable[[str], Served], name: str) -> Served:
    """In a thread that nobody waits for when the server stops: compiling can take a minute."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Served] = loop.create_future()

    def settle(served: Served | None, error: BaseException | None) -> None:
        if future.done():
            return
        if served is not None:
            future.set_result(served)
        else:
            future.set_exception(error or RuntimeError("no model"))

    def work() -> None:
        served, error = None, None
        try:
            served = open_model(name)
        except Exception as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
            loop.call_soon_threadsafe(settle, served, error)

    threading.Thread(target=work, name=f"loading {name}", daemon=True).start()
    return await future
