from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.rule import Finding, Fix, Level, Rule, Safety
from torchlint.semantics.evaluation import EvalRegion, eval_regions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlint.fixing.edits import Edit
    from torchlint.semantics import Module


class EvalWithoutNoGrad(Rule):
    """An evaluation records gradients that nobody uses.

    ## What it finds
    An evaluation function (its name starts with eval, valid, test, predict, infer, sample or generate), or the code
    after `model.eval()`, that runs a module's forward with gradients on, while nothing in it or after it
    differentiates. Guards are followed: `with` blocks, decorators, the callees that do the forward, and every call
    site in view.

    ## Why it costs
    Autograd keeps the inputs of every operation for a backward that never comes: the memory of an evaluation grows to
    that of a training step, and each operation records its graph node. (PyTorch notes, "Autograd mechanics · Locally
    disabling gradient computation".)

    ## Example
    ```python
    def evaluate(model, loader):
        model.eval()
        for x, y in loader:
            hits += (model(x).argmax(dim=1) == y).sum()
    ```

    ## Use instead
    ```python
    @torch.no_grad()
    def evaluate(model, loader):
        model.eval()
        for x, y in loader:
            hits += (model(x).argmax(dim=1) == y).sum()
    ```

    ## When it is fine
    Where an evaluation differentiates (adversarial examples, saliency), it is not reported.

    ## Fix safety
    Safe where what is returned carries no graph anyway: `@torch.no_grad()` on the function (also right for generators),
    `with torch.no_grad():` around module-level code. Unsafe where a returned tensor loses its graph.
    """

    code, name, level = "TL401", "eval-without-no-grad", Level.WARNING
    screen = ("eval", "valid", "val_", "test", "predict", "infer", "sample", "generate")
    fixable = Safety.SAFE

    def check(self, module: Module) -> Iterator[Finding]:
        for region in eval_regions(module):
            yield self.finding(region.node, _message(region), self._fix(module, region))

    @staticmethod
    def _fix(module: Module, region: EvalRegion) -> Fix | None:
        if region.guard is None:
            return None
        unsafe = "" if not region.returns_graph else "a returned tensor no longer carries its graph"
        return Fix(
            f"`@{region.guard}` on the function" if region.function else f"`with {region.guard}:` around it",
            Safety.UNSAFE if unsafe else Safety.SAFE,
            lambda: _edits(module, region),
            unsafe,
        )


def _edits(module: Module, region: EvalRegion) -> Sequence[Edit]:
    from torchlint.fixing.edits import decorate, wrap_in_with

    assert region.guard is not None
    if region.function is not None:
        return decorate(module.source, region.function.node, region.guard)
    return wrap_in_with(module.source, region.statements, region.guard)


def _message(region: EvalRegion) -> str:
    where = f"`{region.function.name}`" if region.function else "this evaluation"
    return f"{where} records gradients that nothing uses: run it under `torch.no_grad()` or `torch.inference_mode()`"
