"""What is being measured, and how much is left: a bar on a terminal, a line for each step elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from .reports.escaping import inline

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress, TaskID


class VerifyProgress:
    """Call `begin` with what comes next, for each of `total` steps.

    With `wanted` False nothing is written. Everything goes to `stream`, standard error if none is given, so that a
    report on standard output stays whole.
    """

    def __init__(self, total: int, *, wanted: bool = True, stream: TextIO | None = None) -> None:
        self._total = total
        self._begun = 0
        self._wanted = wanted
        self._stream = stream if stream is not None else sys.stderr
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> VerifyProgress:
        if self._wanted and self._stream.isatty():
            self._show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None and self._task is not None:
            if error is None:
                self._bar.update(self._task, completed=self._total)
            self._bar.stop()

    def begin(self, text: str) -> None:
        """The step before is done, the one that `text` names begins."""
        self._begun += 1
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._begun - 1, description=inline(text))
        elif self._wanted:
            self._stream.write(f"[{self._begun}/{self._total}] {inline(text)}\n")
            self._stream.flush()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(file=self._stream, markup=False, highlight=False, emoji=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=self._total)
        self._bar.start()
