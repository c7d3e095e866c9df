"""The sizes written in layer calls: which of them decide a width, and whether somebody goes on computing with it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from torchlint.semantics.layers_facts import argument
from torchlint.semantics.layers_graph import CONVOLUTIONS, EMBEDDINGS, MULTIPLYING, TRANSFORMERS, Layer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlint.semantics.layers_flow import LayerFlow
    from torchlint.semantics.module import Module

SMALLEST = 64
"""Below this a width is too small for its alignment to matter."""
ALIGNMENT = 8
"""Elements: what fp16 and bf16 tensor cores want."""

# Sizes that count things to tell apart, not features: they are what they are.
_COUNTS = re.compile(r"class|label|categor|target|token|vocab", re.IGNORECASE)
_SOFTMAX = frozenset({"torch.nn.Softmax", "torch.nn.LogSoftmax", "torch.nn.Softmax2d"})


class Size(NamedTuple):
    """A literal size: the parameter that it is given for, its value, and the name of the constant that holds it."""

    parameter: str
    value: int
    name: str = ""

    @property
    def unaligned(self) -> bool:
        return self.value >= SMALLEST and self.value % ALIGNMENT != 0


class SizedLayer(NamedTuple):
    """A layer call with the literal sizes that it makes (outputs), takes in, and tells apart (an embedding's rows)."""

    call: ast.Call
    kind: str
    outputs: tuple[Size, ...]
    inputs: tuple[Size, ...]
    rows: tuple[Size, ...]
    grouped: bool


class Width(NamedTuple):
    """Unaligned sizes of one layer call: the layer's class and, for each, the parameter and the size."""

    call: ast.Call
    layer: str
    sizes: tuple[Size, ...]


def literal_sizes(module: Module) -> list[SizedLayer]:
    """Every layer call with a literal size of some width that misses the alignment; all literal sizes of such files."""
    found = []
    for kind in (*CONVOLUTIONS, "torch.nn.Linear", "torch.nn.LazyLinear", *sorted(EMBEDDINGS), *sorted(TRANSFORMERS)):
        for call in module.calls_named(kind.rpartition(".")[2]):
            sized = _sized(module, call, kind)
            if sized.outputs or sized.inputs or sized.rows:
                found.append(sized)
    interesting = any(s.unaligned for layer in found for s in (*layer.outputs, *layer.inputs, *layer.rows))
    return [layer for layer in found if module.qualified(layer.call.func) == layer.kind] if interesting else []


def _sized(module: Module, call: ast.Call, kind: str) -> SizedLayer:
    def sizes(*parameters: tuple[str, int]) -> tuple[Size, ...]:
        values = ((name, argument(call, name, position)) for name, position in parameters)
        return tuple(
            Size(name, *known) for name, node in values if node is not None and (known := _literal(module, node))
        )

    if kind in EMBEDDINGS:
        return SizedLayer(call, kind, sizes(("embedding_dim", 1)), (), sizes(("num_embeddings", 0)), False)
    if kind in TRANSFORMERS:
        feedforward = 4 if kind == "torch.nn.Transformer" else 2
        if kind.endswith("MultiheadAttention"):
            return SizedLayer(call, kind, sizes(("embed_dim", 0)), (), (), False)
        return SizedLayer(call, kind, sizes(("d_model", 0), ("dim_feedforward", feedforward)), (), (), False)
    lazy = ".Lazy" in kind
    unit = "features" if kind.endswith("Linear") else "channels"
    outputs = sizes((f"out_{unit}", 0 if lazy else 1))
    inputs = () if lazy else sizes((f"in_{unit}", 0))
    groups = argument(call, "groups", 6 - lazy) if kind in CONVOLUTIONS else None
    grouped = groups is not None and not (isinstance(groups, ast.Constant) and groups.value == 1)
    return SizedLayer(call, kind, outputs, inputs, (), grouped)


def _literal(module: Module, node: ast.expr) -> tuple[int, str] | None:
    """An integer literal, or a module- or class-level constant that holds one, with the constant's name."""
    if isinstance(node, ast.Constant):
        return (node.value, "") if type(node.value) is int else None
    if isinstance(node, ast.Name):
        scope = module.scope_of(node)
        while scope.parent is not None and node.id not in scope.bindings:
            scope = scope.parent
        values = scope.bindings.get(node.id, []) if scope.parent is None else []
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        cls = module.class_of(node)
        if cls is None or node.value.id not in ("self", "cls", cls.name) or node.attr in cls.writers:
            return None
        values = cls.scope.bindings.get(node.attr, [])
    else:
        return None
    if len(values) != 1 or not isinstance(values[0], ast.Constant) or type(values[0].value) is not int:
        return None
    return values[0].value, node.id if isinstance(node, ast.Name) else node.attr


def unaligned_widths(module: Module, flow: LayerFlow, layers: list[SizedLayer]) -> list[Width]:
    """The unaligned sizes that a layer makes and another goes on computing with.

    A size is flagged where a layer makes it. It is flagged again at a layer that takes it in only where both layers
    stand in statements of their own and the second is a wide product itself: then two far-off lines have to change.
    """
    by_call = {sized.call: sized for sized in layers}
    flagged: dict[ast.Call, list[Size]] = {}
    for sized in layers:
        sizes = [*_made(module, flow, sized, layers), *_shared_rows(module, sized, layers)]
        if sizes:
            flagged[sized.call] = sizes
    for call in list(flagged):
        made = {size.value for size in by_call[call].outputs if size in flagged[call]}
        for consumer in _consumers(flow.layer_at.get(call)):
            taken = by_call.get(consumer.call)
            if taken is None or not (_own_statement(module, call) and _own_statement(module, taken.call)):
                continue
            if any(size.value >= SMALLEST for size in taken.outputs):
                sizes = flagged.setdefault(taken.call, [])
                sizes.extend(size for size in taken.inputs if size.value in made and size not in sizes)
    found = [
        Width(call, by_call[call].kind.rpartition(".")[2], tuple(sizes)) for call, sizes in flagged.items() if sizes
    ]
    return sorted(found, key=lambda w: (w.call.lineno, w.call.col_offset))


def _made(module: Module, flow: LayerFlow, sized: SizedLayer, layers: list[SizedLayer]) -> Iterator[Size]:
    """The unaligned sizes that a layer makes for others: not the last layer's, not a count of classes."""
    if sized.grouped:
        return
    for size in sized.outputs:
        if not size.unaligned or _COUNTS.search(size.name):
            continue
        if sized.kind in TRANSFORMERS:
            if size.parameter == "dim_feedforward" or not _made_elsewhere(module, sized, size, layers):
                yield size
        elif any(True for _ in _consumers(flow.layer_at.get(sized.call))):
            yield size


def _made_elsewhere(module: Module, sized: SizedLayer, size: Size, layers: list[SizedLayer]) -> bool:
    """Whether another layer of the same class makes this size: then it was flagged there."""
    owner = module.class_of(sized.call)
    before = layers[: layers.index(sized)]
    return any(
        size.value in [s.value for s in other.outputs] and module.class_of(other.call) is owner
        for other in layers
        if other.kind not in TRANSFORMERS or other in before
    )


def _shared_rows(module: Module, sized: SizedLayer, layers: list[SizedLayer]) -> Iterator[Size]:
    """An embedding's unaligned number of rows, where an output projection has as many features or the same weight."""
    for size in sized.rows:
        if not size.unaligned:
            continue
        owner = module.class_of(sized.call)
        same = any(
            other.kind == "torch.nn.Linear"
            and module.class_of(other.call) is owner
            and size.value in [s.value for s in other.outputs]
            for other in layers
        )
        if same or _weight_shared(module, sized.call):
            yield size


def _weight_shared(module: Module, embedding: ast.Call) -> bool:
    """`F.linear(x, self.embed.weight)` or `self.head.weight = self.embed.weight`."""
    statement = module.parents.get(embedding)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Attribute):
        return False
    for call in module.calls_named("linear"):
        if len(call.args) > 1 and _is_weight(call.args[1], target.attr):
            return True
    owner = module.class_of(embedding)
    return owner is not None and any(
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Attribute)
        and node.targets[0].attr == "weight"
        and (_is_weight(node.value, target.attr) or _is_weight(node.targets[0], target.attr))
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "weight"
        for node in ast.walk(owner.node)
    )


def _is_weight(node: ast.expr, attribute: str) -> bool:
    match node:
        case ast.Attribute(attr="weight", value=ast.Attribute(attr=name)):
            return name == attribute
    return False


def _own_statement(module: Module, call: ast.Call) -> bool:
    return isinstance(module.parents.get(call), (ast.Assign, ast.AnnAssign))


def _consumers(layer: Layer | None) -> Iterator[Layer]:
    """The layers with weights that take a layer's output, directly or through others without."""
    if layer is None:
        return
    seen: set[Layer] = set()
    queue: list[Layer] = [layer]
    while queue:
        current = queue.pop()
        for follower in (*current.followers, *current.feeds):
            if follower is None or follower in seen:
                continue
            seen.add(follower)
            if follower.kind in MULTIPLYING or not follower.kind:
                if follower is not layer:
                    yield follower
            elif follower.kind not in _SOFTMAX:
                queue.append(follower)
