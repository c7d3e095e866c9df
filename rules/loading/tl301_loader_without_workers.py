from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint.rule import Finding, Fix, Level, Rule, Safety
from torchlint.semantics.loaders import (
    drawn_once,
    holds_local_code,
    in_memory,
    is_iterable_dataset,
    loader_argument,
    may_hide_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlint.fixing.edits import Edit
    from torchlint.semantics import Module

_LOADER = "torch.utils.data.DataLoader"


class LoaderWithoutWorkers(Rule):
    """A DataLoader decodes every item in the training process.

    ## What it finds
    `DataLoader(…)` with `num_workers` missing or 0. Silent where `**kwargs` may carry it, where it comes from a
    variable, for datasets in view that only index memory (their subsets, splits and concatenations too), and for a
    loader that is drawn from once.

    ## Why it costs
    With no workers the training loop itself loads, decodes and collates each batch, and the GPU waits for it. Worker
    processes prepare the next batches meanwhile. (PyTorch documentation, `torch.utils.data`, "Single- and Multi-process
    Data Loading".)

    ## Example
    ```python
    loader = DataLoader(photos, batch_size=64, shuffle=True)
    ```

    ## Use instead
    ```python
    loader = DataLoader(photos, batch_size=64, shuffle=True, num_workers=4)
    ```

    ## When it is fine
    For data that is in memory already, for a handful of items, and where worker processes cannot run.

    ## Fix safety
    Unsafe: items are loaded in other processes, each with its own random state and memory, and where processes are
    spawned (Windows, macOS) the script needs an `if __name__ == "__main__":` guard. No fix for an IterableDataset,
    whose items each worker would repeat, nor where a lambda or a function defined in another one reaches the loader: it
    cannot be sent to a process that is spawned.
    """

    code, name, level = "TL301", "loader-without-workers", Level.INFO
    screen = ("DataLoader",)
    fixable = Safety.UNSAFE

    def check(self, module: Module) -> Iterator[Finding]:
        for call in module.calls_of(_LOADER):
            if may_hide_arguments(call):
                continue
            workers = loader_argument(call, "num_workers")
            if workers is not None and not (isinstance(workers, ast.Constant) and workers.value == 0):
                continue
            if in_memory(module, call) or drawn_once(module, call):
                continue
            start = module.settings.dataloader_workers
            yield self.finding(
                call,
                f"this loader loads every batch in the training process; start with `num_workers={start}` (at most the "
                "CPU cores for each GPU) and raise it until the GPU no longer waits",
                self._fix(module, call, start),
            )

    @staticmethod
    def _fix(module: Module, call: ast.Call, workers: int) -> Fix | None:
        if is_iterable_dataset(module, call) or holds_local_code(module, call):
            return None
        return Fix(
            f"set `num_workers={workers}`",
            Safety.UNSAFE,
            lambda: _edits(module, call, workers),
            "items are loaded in worker processes with their own random state and memory",
        )


def _edits(module: Module, call: ast.Call, workers: int) -> Sequence[Edit]:
    from torchlint.fixing import edits

    current = loader_argument(call, "num_workers")
    if current is not None and current in call.args:
        return edits.replace_expression(module.source, current, str(workers))
    return edits.set_argument(module.source, call, "num_workers", str(workers))
