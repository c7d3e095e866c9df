from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint import torch_api
from torchlint.rule import Finding, Fix, Level, Rule, Safety
from torchlint.semantics.factories import Creation, counts_whole, creation_moved_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlint.fixing.edits import Edit
    from torchlint.semantics import Module


class CreateThenMove(Rule):
    """A tensor is made on the CPU, then copied to the device.

    ## What it finds
    A factory or legacy constructor whose result is moved at once: `torch.zeros(n).cuda()`,
    `torch.tensor(x).to(device)`; with a view, expand or in-place fill between; and where the first use of the bound
    name, in the same block, is the move. Not `from_numpy`, which has no `device=`; not `*_like`, which follows its
    argument.

    ## Why it costs
    The values are written once in host memory and then copied over the bus, and the copy of pageable memory makes
    Python wait. With `device=` a kernel writes them where they are needed. (PyTorch tuning guide, "Create tensors
    directly on the target device".)

    ## Example
    ```python
    mask = torch.ones(n, n).to(device)
    ```

    ## Use instead
    ```python
    mask = torch.ones(n, n, device=device)
    ```

    ## When it is fine
    Where random values must be the same as the CPU generator's for a seed.

    ## Fix safety
    Safe for zeros, ones, full, empty, eye, integer arange, tensor and as_tensor without `requires_grad=True`, in one
    expression. Unsafe for random factories (the CPU's and the GPU's generators differ), for arange and linspace of
    floats, with `requires_grad=True` (a moved tensor is no leaf), and where creation and move are two statements. None
    with a view, expand or fill between, and none for legacy constructors of values.
    """

    code, name, level = "TL201", "create-then-move", Level.WARNING
    screen = ("cuda", "to")
    fixable = Safety.SAFE

    def check(self, module: Module) -> Iterator[Finding]:
        for move in module.calls_named("cuda", "to"):
            if not module.moves_to_device(move):
                continue
            creation = creation_moved_by(module, move)
            if creation is not None:
                yield self.finding(move, _message(creation), self._fix(module, creation))

    @staticmethod
    def _fix(module: Module, creation: Creation) -> Fix | None:
        if (
            creation.changed
            or creation.name in torch_api.LEGACY_CONSTRUCTORS
            or not module.names_a_device(creation.move)
        ):
            return None
        if not _takes_device(creation):
            return None
        unsafe = _why_unsafe(creation)
        if creation.binding is not None:
            if creation.move_statement is None:
                return None
            unsafe = unsafe or "creation and move are two statements"
        safety = Safety.UNSAFE if unsafe else Safety.SAFE
        return Fix("create it on the device", safety, lambda: _edits(module, creation), unsafe)


def _edits(module: Module, creation: Creation) -> Sequence[Edit]:
    from torchlint.fixing import edits

    if creation.move_statement is None:
        return edits.move_argument_into(module.source, creation.move, creation.call, "device")
    return edits.move_into_statement(module.source, creation.move, creation.call, creation.move_statement)


def _takes_device(creation: Creation) -> bool:
    """Whether the move says nothing but where, and nothing that the factory unpacks may hold `device` already.

    A generator belongs to a device: with one of the CPU, the factory raises for any other.
    """
    if any(isinstance(a, ast.Starred) for a in creation.call.args) or any(
        k.arg in (None, "generator") for k in creation.call.keywords
    ):
        return False
    return len(creation.move.args) <= 1 and all(k.arg in ("device", "non_blocking") for k in creation.move.keywords)


def _message(creation: Creation) -> str:
    short = creation.name.removeprefix("torch.")
    if creation.name in torch_api.LEGACY_CONSTRUCTORS:
        return (
            f"`{short}(…)` makes the tensor on the CPU, then the move copies it; "
            "use `torch.tensor(…, device=…)` or `torch.empty(…, device=…)`"
        )
    return f"`{short}(…)` makes the tensor on the CPU, then the move copies it; pass `device=` to `{short}`"


def _why_unsafe(creation: Creation) -> str:
    keywords = {k.arg: k.value for k in creation.call.keywords}
    gradient = keywords.get("requires_grad")
    if creation.name in torch_api.RANDOM_FACTORIES:
        return "the random numbers of the GPU's generator differ from the CPU's"
    if gradient is not None and not (isinstance(gradient, ast.Constant) and gradient.value is False):
        return "the tensor becomes a leaf, which the moved one is not"
    if creation.name in ("torch.linspace", "torch.logspace"):
        return "float steps may round differently on the device"
    if creation.name == "torch.arange" and not counts_whole(creation.call):
        return "float steps may round differently on the device"
    return ""
