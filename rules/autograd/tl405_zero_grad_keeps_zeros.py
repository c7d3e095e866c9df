from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint.rule import Finding, Fix, Level, Rule, Safety

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlint.fixing.edits import Edit
    from torchlint.semantics import Module

_SINCE_DEFAULT_TRUE = (2, 0)


class ZeroGradKeepsZeros(Rule):
    """Gradients are filled with zeros where they could be dropped.

    ## What it finds
    `zero_grad(set_to_none=False)` (also `zero_grad(False)`) of an optimizer or module; and a bare `zero_grad()` where
    the project supports a torch older than 2.0, in which `set_to_none` was still False by default.

    ## Why it costs
    Zeros are written to every gradient, and the next backward then reads and adds to them, where a gradient of None is
    simply assigned. (PyTorch documentation, `torch.optim.Optimizer.zero_grad`; the default became True in 2.0.)

    ## Example
    ```python
    optimizer.zero_grad(set_to_none=False)
    ```

    ## Use instead
    ```python
    optimizer.zero_grad()
    ```

    ## When it is fine
    Where code reads `p.grad` between the call and the next backward and cannot take None.

    ## Fix safety
    Unsafe: gradients are None instead of zeros until the next backward, which code in between may read; an optimizer
    skips parameters without a gradient, but steps on a zero one (weight decay, momentum). The argument is added only
    where the optimizer is seen to be torch's own: `zero_grad` of others, such as apex's fused ones, takes none.
    """

    code, name, level = "TL405", "zero-grad-keeps-zeros", Level.WARNING
    screen = ("zero_grad",)
    fixable = Safety.UNSAFE

    def check(self, module: Module) -> Iterator[Finding]:
        old = module.target_torch < _SINCE_DEFAULT_TRUE
        for call in module.calls_named("zero_grad"):
            if not _is_torch(module, call) or any(isinstance(a, ast.Starred) for a in call.args):
                continue
            argument = _argument(call)
            if argument is None:
                if old and not call.args and not call.keywords:
                    yield self.finding(call, _OLD_MESSAGE, self._fix(module, call, "set_to_none"))
            elif isinstance(argument, ast.Constant) and argument.value is False:
                yield self.finding(call, _MESSAGE, self._fix(module, call, "" if not old else "set_to_none"))

    @staticmethod
    def _fix(module: Module, call: ast.Call, add: str) -> Fix | None:
        if add and not call.args and not call.keywords and not _takes_argument(module, call):
            return None
        does = "pass `set_to_none=True`" if add else "drop the argument"
        return Fix(does, Safety.UNSAFE, lambda: _edits(module, call, add), _REASON)


def _edits(module: Module, call: ast.Call, add: str) -> Sequence[Edit]:
    from torchlint.fixing import edits

    if add and call.args:
        return edits.replace_expression(module.source, call.args[0], "True")
    if add:
        return edits.set_argument(module.source, call, add, "True")
    named = any(k.arg == "set_to_none" for k in call.keywords)
    return edits.drop_argument(module.source, call, "set_to_none" if named else 0)


_REASON = "gradients are None instead of zeros until the next backward"
_MESSAGE = (
    "`set_to_none=False` writes zeros to every gradient and adds to them in backward; "
    "let `zero_grad()` drop the gradients"
)
_OLD_MESSAGE = (
    "before torch 2.0, which the project supports, a bare `zero_grad()` writes zeros to every gradient; "
    "pass `set_to_none=True`"
)


def _is_torch(module: Module, call: ast.Call) -> bool:
    """Whether a `zero_grad` is torch's own: of an optimizer or module whose class does not define another."""
    if not isinstance(call.func, ast.Attribute) or module.value(call.func.value).kind not in ("optimizer", "module"):
        return False
    return module.value(call.func).kind == "method"


def _takes_argument(module: Module, call: ast.Call) -> bool:
    """Whether the receiver is shown to be torch's own: `zero_grad` of apex's optimizers takes no argument."""
    assert isinstance(call.func, ast.Attribute)
    receiver = module.value(call.func.value)
    return receiver.kind == "module" or receiver.name.startswith("torch.")


def _argument(call: ast.Call) -> ast.expr | None:
    """What is passed for `set_to_none`, None where nothing is; `**options` counts as something unknown."""
    if call.args:
        return call.args[0]
    return next((k.value for k in call.keywords if k.arg in ("set_to_none", None)), None)
