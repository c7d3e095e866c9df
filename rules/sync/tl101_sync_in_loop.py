from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint.rule import Finding, Fix, Level, Rule, Safety
from torchlint.semantics.accumulators import Accumulation, accumulation_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlint.fixing.edits import Edit
    from torchlint.semantics import Module

_METHODS = ("item", "cpu", "tolist", "to")
_CONVERSIONS = ("float", "int", "bool")


class SyncInLoop(Rule):
    """A value is read from the GPU on every iteration of a step loop.

    ## What it finds
    `.item()`, `.cpu()`, `.tolist()`, `.to("cpu")`, `float(t)`, `int(t)` and `bool(t)` on a tensor, in code that runs on
    every iteration of a step loop (or in the `forward` of a module, or in a function that such code calls), in a
    project that names a GPU device. One finding for each chain: `x.detach().cpu().numpy()` is one. A helper that does
    nothing but read its parameter is reported where it is called.

    ## Why it costs
    CUDA work is queued: Python normally runs ahead of the GPU. Reading a value makes Python wait until everything
    queued so far has finished, and the GPU then idles until Python has queued new work. (PyTorch documentation, "CUDA
    semantics · Asynchronous execution".)

    ## Example
    ```python
    for x, y in loader:
        loss = step(model, x, y)
        total += loss.item()
    print(total / len(loader))
    ```

    ## Use instead
    ```python
    for x, y in loader:
        loss = step(model, x, y)
        total += loss.detach()
    print(float(total) / len(loader))
    ```
    Keep the values on the device, and read them once after the loop or every hundred steps.

    ## When it is fine
    After the loop, under a periodic guard (`if step % 100 == 0:`), behind a debug flag, on tensors that live on the
    CPU: none of these is reported. Where the loop cannot go on without the value (an action for a simulator), suppress
    it.

    ## Fix safety
    Unsafe, and only for `total += loss.item()` where `total` starts as a number and is read only after the loop: the
    sum is then made in float32 on the device (Python's own sum is float64), and converted once after the loop.
    """

    code, name, level = "TL101", "sync-in-loop", Level.WARNING
    screen = ("item", "cpu", "tolist", "float", "int", "bool")
    fixable = Safety.UNSAFE

    def check(self, module: Module) -> Iterator[Finding]:
        if not module.device_project:
            return
        for call in module.calls_named(*_METHODS, *_CONVERSIONS):
            if module.hot(call) and _read_tensor(module, call) is not None and not module.inside_sync_wrapper(call):
                yield self.finding(call, _message(call), self._fix(module, call))
        for call in module.sync_wrapper_calls():
            if module.hot(call):
                yield self.finding(
                    call,
                    f"`{ast.unparse(call.func)}()` reads its tensor from the GPU on every step: "
                    "Python waits for all queued work",
                )

    def _fix(self, module: Module, call: ast.Call) -> Fix | None:
        accumulation = accumulation_of(module, call)
        if accumulation is None:
            return None
        return Fix(
            f"accumulate on the device, convert `{accumulation.name}` once after the loop",
            Safety.UNSAFE,
            lambda: _edits(module, call, accumulation),
            "the sum is made in float32 on the device"
            if not accumulation.integer
            else "the sum is a tensor until the loop ends",
        )


def _edits(module: Module, call: ast.Call, accumulation: Accumulation) -> Sequence[Edit]:
    from torchlint.fixing.edits import accumulate_then_convert

    return accumulate_then_convert(module.source, call, accumulation.statement, accumulation.loop, accumulation.integer)


def _read_tensor(module: Module, call: ast.Call) -> ast.expr | None:
    """The tensor that a call reads onto the host, None where it reads none or the tensor is on the host already."""
    if isinstance(call.func, ast.Name):
        if len(call.args) != 1 or call.keywords or module.qualified(call.func) != f"builtins.{call.func.id}":
            return None
        tensor = call.args[0]
    elif isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS:
        tensor = call.func.value
        if call.func.attr == "to" and not module.moves_to_host(call):
            return None
    else:
        return None
    value = module.value(tensor)
    if isinstance(call.func, ast.Name) and not value.sure:
        return None
    return tensor if value.kind == "tensor" and not value.host else None


def _message(call: ast.Call) -> str:
    what = f"`.{call.func.attr}()`" if isinstance(call.func, ast.Attribute) else f"`{ast.unparse(call.func)}()`"
    return (
        f"{what} reads from the GPU on every step: Python waits for all queued work; "
        "keep it on the device and read it after the loop or every n steps"
    )
