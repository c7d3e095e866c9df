"""TL502: a layer's width that misses the tensor cores' alignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.rule import Finding, Level, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlint.semantics import Module
    from torchlint.semantics.layers import Width


class UnalignedDim(Rule):
    """A literal width is no multiple of 8, so matrix products run on padded or slower kernels.

    ## What it finds
    A feature, channel or vocabulary size of 64 or more that is no multiple of 8, written as a literal (or as a constant
    of the module or class) in the call of a `Linear`, `Embedding`, convolution or Transformer layer. A size is reported
    at the layer that makes it, if another layer goes on computing with it, and once more at a wide layer elsewhere in
    the same class that takes it in; an embedding's `num_embeddings` only where an output projection shares it.

    ## Why it costs
    Tensor cores work on tiles: products of sizes that fill them run at full speed, others on padded or slower kernels.
    fp16 and bf16 want multiples of 8, TF32 of 4, int8 of 16; on A100 and later, multiples of 64 are best.
    `torch.compile` pads by itself.

    ## Example
    ```python
    self.embed = nn.Embedding(vocabulary, 300)
    self.inner = nn.Linear(300, 512)
    ```

    ## Use instead
    ```python
    self.embed = nn.Embedding(vocabulary, 304)
    self.inner = nn.Linear(304, 512)
    ```

    ## When it is fine
    Where the size is given from outside: pretrained vectors or weights, a number of classes, channels of the input.
    Small models and CPU inference do not notice. The last layer's output, the first layer's input, sizes from arguments
    and depthwise convolutions are not reported.

    ## Fix safety
    No fix: another width is another model.
    """

    code = "TL502"
    name = "unaligned-dim"
    level = Level.INFO
    screen = ("Linear", "Conv", "Embedding", "Transformer", "MultiheadAttention")

    def check(self, module: Module) -> Iterator[Finding]:
        for width in module.layers.unaligned_widths():
            yield self.finding(width.call, _message(width))


def _message(width: Width) -> str:
    sizes = " and ".join(
        f"{size.parameter}={size.value} (next multiple of 8: {-(-size.value // 8) * 8})" for size in width.sizes
    )
    return (
        f"{width.layer} with {sizes}: tensor cores want multiples of 8 for fp16/bf16, 4 for TF32, 16 for int8; "
        "64 is best on A100 and later"
    )
