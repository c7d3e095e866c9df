"""TL501: a bias that the following norm cancels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.rule import Finding, Fix, Level, Rule, Safety

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlint.fixing.edits import Edit
    from torchlint.semantics import Module
    from torchlint.semantics.layers import BiasedLayer


class BiasBeforeNorm(Rule):
    """A layer's bias is computed, then cancelled by the normalization that follows.

    ## What it finds
    A convolution, transposed convolution or `Linear` with a bias whose output goes straight, and only, into BatchNorm
    (SyncBatchNorm included), InstanceNorm, or GroupNorm with one channel in each group, on every path: next to each
    other in a `Sequential` or a list that becomes one, or one after the other in a `forward`.

    ## Why it costs
    The norm subtracts each channel's mean, and with it any constant that was added to the channel. In training the bias
    has no effect, but it is added, stored, given a gradient (a reduction over the whole batch) and updated by the
    optimizer on every step.

    ## Example
    ```python
    self.block = nn.Sequential(
        nn.Conv2d(64, 128, 3, padding=1),
        nn.BatchNorm2d(128),
        nn.ReLU(),
    )
    ```

    ## Use instead
    ```python
    self.block = nn.Sequential(
        nn.Conv2d(64, 128, 3, padding=1, bias=False),
        nn.BatchNorm2d(128),
        nn.ReLU(),
    )
    ```

    ## When it is fine
    Before LayerNorm or a GroupNorm with several channels in a group the bias does have an effect, and with anything
    between the layer and the norm it has too: neither is reported. Where checkpoints must keep their keys, keep the
    bias and suppress the finding.

    ## Fix safety
    Unsafe: `bias=False` removes a key from the `state_dict`, and the layers built afterwards draw other random numbers.
    A model that is already trained and used in eval mode keeps its outputs only if the old bias is subtracted from the
    norm's `running_mean`. No fix is offered where the call unpacks `*args` or `**kwargs`.
    """

    code = "TL501"
    name = "bias-before-norm"
    level = Level.WARNING
    screen = ("Conv", "Linear", "conv", "linear")
    fixable = Safety.UNSAFE

    def check(self, module: Module) -> Iterator[Finding]:
        for found in module.layers.biases_before_norms():
            yield self.finding(found.call, _message(found), _fix(module, found) if found.fixable else None)


def _message(found: BiasedLayer) -> str:
    return (
        f"{found.norm} cancels the bias of this {found.layer}: set {found.keyword}=False "
        "(in an already trained model used in eval mode, also subtract the old bias from the norm's running_mean)"
    )


def _fix(module: Module, found: BiasedLayer) -> Fix:
    return Fix(
        f"set {found.keyword}=False",
        Safety.UNSAFE,
        lambda: _edits(module, found),
        "the layer's bias key leaves the state_dict, and layers built later draw other initial values",
    )


def _edits(module: Module, found: BiasedLayer) -> Sequence[Edit]:
    from torchlint.fixing import edits

    if found.given is not None:
        return edits.replace_expression(module.source, found.given, "False")
    return edits.set_argument(module.source, found.call, found.keyword, "False")
