"""The server's end of the process that knows the project's other files (`live`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from torchlint.server.live import Answer, Cancel, serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from torchlint.server.live import Request

_log = logging.getLogger(__name__)


class Background:
    """Asks one question at a time. The process is started with the first one, and again where it died."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "torchlint-facts")
        self._sending = threading.Lock()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._is_closed = False

    async def ask(self, request: Request, progress: Callable[[int, int], None]) -> Answer | None:
        """The answer; None where it was cancelled, or the process died of it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._ask, request, loop, progress)

    def cancel(self) -> None:
        """End the work on the present question."""
        with self._sending, contextlib.suppress(OSError):
            if self._connection is not None:
                self._connection.send(Cancel())

    def close(self) -> None:
        """End the process."""
        with self._sending:
            self._is_closed = True
            if self._process is not None:
                self._process.terminate()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _ask(
        self, request: Request, loop: asyncio.AbstractEventLoop, progress: Callable[[int, int], None]
    ) -> Answer | None:
        try:
            connection = self._connected()
            with self._sending:
                connection.send(request)
            while isinstance(said := connection.recv(), tuple):
                loop.call_soon_threadsafe(progress, *said)
            return said if isinstance(said, Answer) else None
        except (EOFError, OSError):
            if not self._is_closed:
                _log.warning("the process that reads the project died; it starts again with the next change")
            self._connection = None
            return None

    def _connected(self) -> Connection:
        with self._sending:
            if self._is_closed:
                raise EOFError
            if self._connection is None:
                context = multiprocessing.get_context("spawn")
                self._connection, theirs = context.Pipe()
                process = context.Process(target=serve, args=(theirs,), name="torchlint-facts")
                process.start()
                self._process = process
                theirs.close()
            return self._connection
