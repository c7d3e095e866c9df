"""Runs a script in this process and reports what its steps cost.

The parent starts `python -m torchlint.runtime_verify.script.instrument REQUEST LIMIT`, a fresh process in the copy of
the script's folder. What the script would see of it is what it would see when started by `python SCRIPT ARGUMENTS`.
"""

from __future__ import annotations

import ast
import faulthandler
import hashlib
import os
import random
import runpy
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from . import guard
from .exchange import Boundary, End, Observed, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from ..records import Environment

# How long before the parent loses its patience a stack trace is written.
_BEFORE_THE_END = 1.5


def main() -> None:
    """Do what the request on the command line asks; the answer goes to the file that it names."""
    request = msgspec.json.decode(sys.argv[1].encode(), type=Request)
    limit = float(sys.argv[2])
    guard.die_with_parent()
    faulthandler.dump_traceback_later(max(limit - _BEFORE_THE_END, 0.5))
    fence = guard.CopyOnWrite(request.tree, request.protected)
    guard.restrict_writes(request.protected, (request.workspace,))
    _put_copy_in_place_of_original(request)
    fence.install()
    _Child(request, fence).run()


class _Child:
    """The run of one script."""

    def __init__(self, request: Request, fence: guard.CopyOnWrite) -> None:

        from .reach import Watcher
        from .steps import Steps, install
        from .syncs import SyncCounter

        self._request = request
        self._fence = fence
        self._losses: list[torch.Tensor] = []
        self._message = ""
        self._counter = SyncCounter() if request.count else None
        self._watcher = Watcher(request.tree, request.watched) if request.count else None
        self._steps = Steps(request, self._answer, self._syncs_so_far if self._counter else None)
        if self._counter:
            _pause_where_reads_stay_on_the_host(self._counter)
        install(self._steps, survey=request.boundary is Boundary.AUTO)
        _watch_backward(self._steps.trains, self._losses)
        _watch_saving(fence)
        _seed(request.seed)

    def run(self) -> None:
        """Run the script to its end, or to the end of the steps asked for."""
        from .steps import Stop

        end = End.FINISHED
        with self._counter or nullcontext():
            try:
                if self._watcher:
                    self._watcher.start()
                _run_script(self._request)
            except Stop:
                return
            except SystemExit as error:
                if error.code not in (None, 0):
                    end, self._message = End.CRASHED, f"it exited with status {error.code}"
                    print(error.code if isinstance(error.code, str) else self._message, file=sys.stderr)
            except BaseException as error:
                end, self._message = End.CRASHED, f"{type(error).__name__}: {error}".split("\n")[0][:500]
                _print_traceback(error)
        self._steps.finish(end)

    def _syncs_so_far(self) -> int:
        assert self._counter is not None
        return self._counter.total

    def _answer(self) -> None:
        """Write what was seen; called when the last step has ended, before the script winds up."""
        from .steps import on_cuda, peak_memory

        if self._watcher:
            self._watcher.stop()
        steps, counter = self._steps, self._counter
        assert steps.end is not None
        peak, memory = peak_memory()
        observed = Observed(
            end=steps.end,
            message=self._message,
            boundary=steps.boundary,
            steps=steps.done,
            skipped=steps.skipped,
            durations=steps.durations,
            elapsed=steps.elapsed,
            syncs=steps.syncs if counter else None,
            sync_kinds=dict(counter.counted) if counter else {},
            losses=tuple(_number(loss) for loss in self._losses),
            peak_bytes=peak,
            memory=memory,
            streams=_random_streams(),
            loaded=tuple(sorted(_modules_below(self._request.tree))),
            foreign=tuple(sorted(_modules_below(self._request.original))),
            clock=steps.clock,
            device="cuda" if on_cuda() else "cpu",
            refused=tuple(dict.fromkeys(self._fence.refused)),
            environment=self._environment(),
            reached=tuple(sorted(self._watcher.reached)) if self._watcher else None,
        )
        path = Path(self._request.answer)
        path.with_suffix(".part").write_bytes(msgspec.msgpack.encode(observed))  # JSON has no NaN
        os.replace(path.with_suffix(".part"), path)

    def _environment(self) -> Environment | None:
        """Where this runs; asked for once, by the run whose times do not count."""
        import torch

        from .. import environment
        from .steps import on_cuda

        if self._request.boundary is not Boundary.AUTO:
            return None
        found: Environment = environment.describe("cuda" if on_cuda() else "cpu", torch.get_num_threads())
        # A subclass of str, as torch.__version__ is, cannot be encoded.
        return msgspec.structs.replace(found, torch=str(found.torch))


def _number(loss: Any) -> float:
    return float(loss.double().cpu())


def _print_traceback(error: BaseException) -> None:
    """Print what the interpreter would have printed, without the frames that ran the script."""
    frames = error.__traceback__
    while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)


def _is_ours(file: str) -> bool:
    return file == __file__ or os.path.basename(file) == "runpy.py" or file == "<frozen runpy>"


# The script


def _run_script(request: Request) -> None:
    script = Path(request.script)
    sys.argv = [request.script, *request.arguments]
    package = _package_of(script)
    if package is not None:
        root = script.parents[len(package.split("."))]
        sys.path.insert(0, str(root))
        runpy.run_module(f"{package}.{script.stem}", run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(script.parent))
        runpy.run_path(request.script, run_name="__main__")


def _package_of(script: Path) -> str | None:
    """The package of a script that imports its siblings relatively (`python -m package.script`), None for others."""
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):
        return None
    if not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
        return None
    parts: list[str] = []
    for folder in script.parents:
        if not (folder / "__init__.py").is_file():
            break
        parts.insert(0, folder.name)
    return ".".join(parts) or None


def _put_copy_in_place_of_original(request: Request) -> None:
    """Have the project imported from its copy, also where it is installed in place (`pip install -e`)."""
    del sys.path[0]  # the current folder, which `-m` put there
    sys.path[:] = [_moved(path, request) for path in sys.path]
    for finder in sys.meta_path:
        # setuptools' editable installs keep a table from package names to folders.
        table = getattr(sys.modules.get(getattr(finder, "__module__", "")), "MAPPING", None)
        if isinstance(table, dict):
            for name, path in table.items():
                if isinstance(path, str) and name.partition(".")[0] != "torchlint":
                    table[name] = _moved(path, request)


def _moved(path: str, request: Request) -> str:
    """The path in the copy of a path in the original project; others as they are."""
    if guard.is_below(path, request.original):
        moved = os.path.join(request.tree, os.path.relpath(path, request.original))
        return moved if os.path.exists(moved) else path
    return path


def _modules_below(folder: str) -> Iterator[str]:
    """The files below a folder that were imported, relative to it."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not os.path.isabs(path) or "site-packages" in path:
            continue
        real = os.path.realpath(path)
        if guard.is_below(real, folder) and module.__name__.partition(".")[0] != "torchlint":
            yield os.path.relpath(real, folder)


# Hooks


def _watch_backward(called: Callable[[], None], losses: list[Any]) -> None:
    """Keep what a backward is called on: a copy on its device, read when everything is over."""
    import torch

    from .steps import not_compiled

    backward = torch.autograd.backward

    def watched(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        called()
        if isinstance(tensors, torch.Tensor) and tensors.numel() == 1:
            losses.append(tensors.detach().clone())
        return backward(tensors, *args, **kwargs)

    torch.autograd.backward = not_compiled(watched)


def _watch_saving(fence: guard.CopyOnWrite) -> None:
    """`torch.save` opens its file in native code, out of sight of the audit hook."""
    import torch

    save = torch.save

    def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):
            fence.make_writable(os.fspath(f))
        return save(obj, f, *args, **kwargs)

    torch.save = saved


def _pause_where_reads_stay_on_the_host(counter: Any) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    from torch.utils.data import DataLoader, dataloader

    from .syncs import watch_host_methods

    def paused(method: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with counter.paused():
                return method(*args, **kwargs)

        return wrapper

    dataloader._BaseDataLoaderIter.__next__ = paused(dataloader._BaseDataLoaderIter.__next__)  # type: ignore[method-assign]
    DataLoader.__iter__ = paused(DataLoader.__iter__)  # type: ignore[method-assign]
    register_optimizer_step_pre_hook(counter.hold)
    register_optimizer_step_post_hook(counter.release)
    watch_host_methods(counter)


# Random numbers


def _seed(seed: int) -> None:
    """The same begin for every run; a script that seeds by itself overrides it."""
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed)


def _random_streams() -> dict[str, str]:
    """Digests of where the random generators stand."""
    import torch

    from .steps import on_cuda

    states: dict[str, bytes] = {
        "torch": bytes(torch.get_rng_state().tolist()),
        "python": repr(random.getstate()).encode(),
    }
    if on_cuda():
        states["cuda"] = bytes(torch.cuda.get_rng_state().tolist())
    if (numpy := sys.modules.get("numpy")) is not None:
        states["numpy"] = repr(numpy.random.get_state(legacy=False)["state"]["key"].tobytes()).encode()
        states["numpy"] += str(numpy.random.get_state(legacy=False)["state"]["pos"]).encode()
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in states.items()}


if __name__ == "__main__":
    main()
