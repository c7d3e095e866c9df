"""Layer graphs: which layer's output goes where, and what rules ask about it.

`layers_flow` follows modules and tensors through a file, `layers_facts` knows what crosses files, `layers_graph` holds
the records, `layers_widths` the sizes written in layer calls.
"""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from torchlint.semantics.layers_facts import (
    LayerSummary,
    LinkedLayers,
    argument,
    bias_codes,
    has_star,
    link_layers,
    may_hold_layers,
    relies_on_bias,
    summarize_layers,
)
from torchlint.semantics.layers_flow import LayerFlow
from torchlint.semantics.layers_graph import BATCH_NORMS, Layer
from torchlint.semantics.layers_guards import asks_for_bias
from torchlint.semantics.layers_roots import pairing_roots, root_of, with_users
from torchlint.semantics.layers_widths import Width, literal_sizes, unaligned_widths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlint.semantics.module import Module

# The end of a parameter's key in a state_dict, `"encoder.conv1.bias"`, and the name before it. One expression for both
# would try each word of the file.
_BIAS_KEY = re.compile(r"""\.bias["']""")
_NAME_BEFORE = re.compile(r"\w*$")
_LONGEST_NAME = 100


class BiasedLayer(NamedTuple):
    """A layer whose bias is cancelled: its call, its class's name ("Conv2d"), the norm's, and how to turn the bias off.

    keyword: the argument of `call` that decides about the bias; given: what the call says for it by position, None
    where it is silent or says it by keyword; fixable: whether it can be written there, since no unpacked arguments may
    hold it.
    """

    call: ast.Call
    layer: str
    norm: str
    keyword: str
    given: ast.expr | None
    fixable: bool


class Layers:
    """The layer graphs of one file, worked out when a rule first asks."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def biases_before_norms(self) -> list[BiasedLayer]:
        """Layers with a bias whose output goes straight, and only, into norms that cancel it, in source order."""
        text = self._module.source.text
        if not may_hold_layers(text) or not self._may_hold_norms(text) or not self._may_have_bias(text):
            return []
        flow = LayerFlow(self._module)
        roots = pairing_roots(self._module, flow.maker)
        if not roots:
            return []
        flow.run(roots)
        hidden = self._hidden(flow)
        found = [
            BiasedLayer(
                layer.call,
                _short(layer.kind),
                _short(min(norm.kind for norm in layer.followers if norm is not None)),
                layer.argument,
                _given_by_position(layer),
                not has_star(layer.call),
            )
            for layer in flow.layer_at.values()
            if layer.bias and _cancelled(layer) and layer not in hidden and not self._bias_needed(layer)
        ]
        return sorted(found, key=lambda f: (f.call.lineno, f.call.col_offset))

    def unaligned_widths(self) -> list[Width]:
        """Literal sizes in layer calls that miss the alignment, in source order."""
        if not may_hold_layers(self._module.source.text) and "Embedding" not in self._module.source.text:
            return []
        sizes = literal_sizes(self._module)
        if not sizes:
            return []
        flow = LayerFlow(self._module)
        flow.run(with_users(self._module, {root_of(self._module, size.call) for size in sizes}))
        return unaligned_widths(self._module, flow, sizes)

    def _may_hold_norms(self, text: str) -> bool:
        return any(word in text for word in ("BatchNorm", "InstanceNorm", "GroupNorm")) or any(
            m.cancels_mean for m in self._module.linked.layers.makers.values()
        )

    def _may_have_bias(self, text: str) -> bool:
        makers = self._module.linked.layers.makers.values()
        return "Conv" in text or "Linear" in text or any(not m.cancels_mean for m in makers)

    def _bias_needed(self, layer: Layer) -> bool:
        """Whether code that is applied to the file's modules relies on this layer's bias."""
        return relies_on_bias((*self._own_bias_code, *self._module.linked.layers.bias_code), layer.kind)

    @cached_property
    def _own_bias_code(self) -> tuple[str, ...]:
        codes = bias_codes(self._module) if ".bias" in self._module.source.text else []
        return tuple(sorted({kind for code in codes if code.applied for kind in code.kinds}))

    def _hidden(self, flow: LayerFlow) -> set[Layer]:
        """Layers that are used in ways which the graph does not show."""
        return flow.hidden.union(
            self._called_elsewhere(flow),
            self._bias_read_elsewhere(flow),
            self._built_for_others(flow),
            flow.never_called(),
        )

    def _called_elsewhere(self, flow: LayerFlow) -> Iterator[Layer]:
        """`backbone.conv1(x)`: layers in an attribute that is called through another object."""
        for name, layers in flow.owners.items():
            for call in self._module.calls_named(name):
                if isinstance(call.func, ast.Attribute) and not self._is_own(call.func.value):
                    yield from layers

    def _bias_read_elsewhere(self, flow: LayerFlow) -> Iterator[Layer]:
        """`model.conv1.bias` without a guard, or the key "conv1.bias": a bias read through another object."""
        module, text = self._module, self._module.source.text
        if ".bias" not in text:
            return
        for node in module.index.attributes.get("bias", ()):
            match node.value:
                case ast.Attribute(attr=name, value=receiver):
                    if name in flow.owners and not self._is_own(receiver) and not asks_for_bias(module, node):
                        yield from flow.owners[name]
        for end in _BIAS_KEY.finditer(text):
            before = _NAME_BEFORE.search(text[max(0, end.start() - _LONGEST_NAME) : end.start()])
            yield from flow.owners.get(before.group() if before else "", ())

    def _is_own(self, receiver: ast.expr) -> bool:
        method = self._module.method_around(receiver)
        return isinstance(receiver, ast.Name) and method is not None and receiver.id == method.self_name

    def _built_for_others(self, flow: LayerFlow) -> Iterator[Layer]:
        """Layers that end what a function builds for callers out of sight."""
        module = self._module
        seen_by_others = module.linked.layers.shared | module.linked.escapes
        for function in module.functions:
            if function.name not in module.index.calls or module.id_of(function) in seen_by_others:
                yield from flow.returned(function)


def _cancelled(layer: Layer) -> bool:
    """Whether all that a layer's output meets are norms that take its bias away.

    A Linear's features are channels only to BatchNorm: InstanceNorm and GroupNorm would normalize over them.
    """
    if not layer.followers:
        return False
    linear = layer.kind.endswith("Linear")
    return all(
        norm is not None and norm.cancels_mean and (not linear or norm.kind in BATCH_NORMS) for norm in layer.followers
    )


def _given_by_position(layer: Layer) -> ast.expr | None:
    """The positional argument that decides about the bias."""
    return argument(layer.call, "", layer.position)


def _short(kind: str) -> str:
    return kind.rpartition(".")[2]


__all__ = ["BiasedLayer", "LayerSummary", "Layers", "LinkedLayers", "Width", "link_layers", "summarize_layers"]
