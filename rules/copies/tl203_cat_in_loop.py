from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.rule import Finding, Fix, Level, Rule, Safety
from torchlint.semantics.growth import Growth, growth_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlint.fixing.edits import Edit
    from torchlint.semantics import Module

_JOINS = ("cat", "stack", "hstack", "vstack", "concat", "concatenate", "dstack", "row_stack")


class CatInLoop(Rule):
    """A tensor grows by `torch.cat` on every iteration.

    ## What it finds
    `x = torch.cat((x, y))` (also `stack`, `hstack`, `vstack`, `concat`, and `[y, x]`) in a loop, where x carries from
    one iteration to the next and the loop needs the grown value for nothing else. Starts such as `x = None` with a
    test, or a test for the first iteration, are seen through.

    ## Why it costs
    Each cat allocates a new tensor and copies everything gathered so far: n iterations copy O(n²) bytes, and the
    allocator has to find ever larger blocks.

    ## Example
    ```python
    out = torch.empty(0, 4)
    for x in batches:
        out = torch.cat((out, model(x)))
    ```

    ## Use instead
    ```python
    parts = []
    for x in batches:
        parts.append(model(x))
    out = torch.cat(parts)
    ```

    ## When it is fine
    Where each iteration reads what has grown so far (generated tokens fed back, dense connections): not reported.

    ## Fix safety
    Safe where the start value is in view: a list that begins with it, one cat after the loop. The list keeps the result
    right for zero iterations too.
    """

    code, name, level = "TL203", "cat-in-loop", Level.WARNING
    screen = _JOINS
    fixable = Safety.SAFE

    def check(self, module: Module) -> Iterator[Finding]:
        for call in module.calls_named(*_JOINS):
            growth = growth_by(module, call)
            if growth is not None:
                yield self.finding(
                    call,
                    f"`{growth.path}` is copied whole on every iteration: "
                    "collect the parts in a list and join them once after the loop",
                    self._fix(module, growth),
                )

    @staticmethod
    def _fix(module: Module, growth: Growth) -> Fix | None:
        if growth.start is None:
            return None
        return Fix("collect in a list, join once after the loop", Safety.SAFE, lambda: _edits(module, growth))


def _edits(module: Module, growth: Growth) -> Sequence[Edit]:
    from torchlint.fixing.edits import list_then_cat

    return list_then_cat(module.source, growth)
