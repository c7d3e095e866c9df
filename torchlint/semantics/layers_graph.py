"""The records of a layer graph: layers, the order of modules, and the tensors that come out of them.

A `Graph` stands for one or more modules and says which layers may come first, which last, and which follow each other
inside. Where two branches build different modules their graphs are joined, so that a fact holds only if it holds on
every path. `None` among the heads or tails stands for a module of which nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator, Sequence

# Layers with a bias (documentation of torch.nn): the position of `bias` among their positional arguments.
CONVOLUTIONS = {
    f"torch.nn.{lazy}{transposed}{dimensions}d": 7 - bool(lazy)
    for lazy in ("", "Lazy")
    for transposed in ("Conv", "ConvTranspose")
    for dimensions in (1, 2, 3)
}
BIAS_POSITION = {**CONVOLUTIONS, "torch.nn.Linear": 2, "torch.nn.LazyLinear": 1}

# These subtract a mean over everything but the channels: a constant added to a channel before them is gone after them.
BATCH_NORMS = frozenset(
    {f"torch.nn.{lazy}BatchNorm{n}d" for lazy in ("", "Lazy") for n in (1, 2, 3)} | {"torch.nn.SyncBatchNorm"}
)
INSTANCE_NORMS = frozenset({f"torch.nn.{lazy}InstanceNorm{n}d" for lazy in ("", "Lazy") for n in (1, 2, 3)})
GROUP_NORM = "torch.nn.GroupNorm"

EMBEDDINGS = frozenset({"torch.nn.Embedding", "torch.nn.EmbeddingBag"})
TRANSFORMERS = frozenset(
    {
        "torch.nn.Transformer",
        "torch.nn.TransformerEncoder",
        "torch.nn.TransformerDecoder",
        "torch.nn.TransformerEncoderLayer",
        "torch.nn.TransformerDecoderLayer",
        "torch.nn.MultiheadAttention",
    }
)
RECURRENT = frozenset(f"torch.nn.{name}" for name in ["LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"])
# Layers that multiply what they take in by a weight matrix.
MULTIPLYING = frozenset(BIAS_POSITION) | TRANSFORMERS | RECURRENT | {"torch.nn.Bilinear"}


@dataclass(eq=False, slots=True)
class Layer:
    """One module, by the call that builds it, and what its output meets.

    kind: the torch class, empty for a module of another class.
    bias: whether it adds a bias; None where that is not known or the kind has none. `argument` is the keyword that
    decides it at `call`, and `position` its place among the positional ones.
    cancels_mean: a norm that takes away what is constant in a channel.
    followers: the layers that take its untouched output; None: anything else does. feeds: the layers that its output
    reaches through other operations.
    """

    call: ast.Call
    kind: str
    bias: bool | None = None
    argument: str = "bias"
    position: int = -1
    cancels_mean: bool = False
    followers: set[Layer | None] = field(default_factory=set)
    feeds: set[Layer] = field(default_factory=set)


Ends = frozenset["Layer | None"]
NOBODY: Ends = frozenset()
SOMEBODY: Ends = frozenset({None})


@dataclass(frozen=True, slots=True)
class Graph:
    """Modules in order. `empty`: input may pass without meeting a layer; `pairs`: who follows whom inside.

    `items` are the elements of a container, `exact` where they are all of them in order, `ordered` where the container
    runs them in that order (a Sequential). A single module has no items.
    """

    heads: Ends
    tails: Ends
    empty: bool = False
    pairs: frozenset[tuple[Layer | None, Layer | None]] = frozenset()
    items: tuple[Graph, ...] = ()
    exact: bool = True
    ordered: bool = False

    def layers(self) -> Iterator[Layer]:
        """Every layer in the graph; some may come twice."""
        yield from (layer for layer in self.heads | self.tails if layer is not None)
        yield from (layer for pair in self.pairs for layer in pair if layer is not None)
        for item in self.items:
            yield from item.layers()

    def exits(self) -> Iterator[Layer]:
        """The layers whose output somebody who calls the module, or an item of the container, gets."""
        yield from (layer for layer in self.tails if layer is not None)
        if not self.ordered:
            for item in self.items:
                yield from item.exits()

    def any_item(self) -> Graph:
        """One element, no matter which."""
        return join_graphs(self.items) if self.items else UNKNOWN_MODULE


@dataclass(frozen=True, slots=True)
class Flowing:
    """A value that is no module: the layers whose untouched output it is, and those whose output went into it."""

    raw: frozenset[Layer] = frozenset()
    through: frozenset[Layer] = frozenset()
    words: tuple[Graph | Flowing, ...] = ()


Value = Graph | Flowing

NOTHING = Flowing()
UNKNOWN_MODULE = Graph(SOMEBODY, SOMEBODY)
NO_MODULES = Graph(NOBODY, NOBODY, empty=True, items=())
IDENTITY = Graph(NOBODY, NOBODY, empty=True)


def single(layer: Layer) -> Graph:
    """The graph of one layer."""
    ends: Ends = frozenset({layer})
    return Graph(ends, ends)


def as_graph(value: Value) -> Graph:
    """A value used as a module: an unknown one where nothing is known of it."""
    return value if isinstance(value, Graph) else UNKNOWN_MODULE


def concatenate(graphs: Sequence[Graph]) -> Graph:
    """The list of these modules, one after the other."""
    heads, tails, empty = NOBODY, NOBODY, True
    pairs: set[tuple[Layer | None, Layer | None]] = set()
    for graph in graphs:
        pairs |= graph.pairs
        pairs.update((tail, head) for tail in tails for head in graph.heads)
        if empty:
            heads |= graph.heads
        tails = graph.tails | tails if graph.empty else graph.tails
        empty = empty and graph.empty
    return Graph(heads, tails, empty, frozenset(pairs), tuple(graphs))


def extend(first: Graph, second: Graph) -> Graph:
    """Two lists joined end to end: the items stay those of both."""
    whole = concatenate([first, second])
    exact = first.exact and second.exact
    return replace(whole, items=_distinct(first.items, second.items, exact), exact=exact)


def repeat(graph: Graph) -> Graph:
    """A list of any number of such modules: what a comprehension or a loop makes."""
    twice = concatenate([graph, graph])
    return Graph(graph.heads, graph.tails, True, twice.pairs, (graph,), exact=False)


def join_graphs(graphs: Sequence[Graph]) -> Graph:
    """One of these graphs, no matter which."""
    first, *others = graphs
    for other in others:
        if other == first:
            continue
        same = len(first.items) == len(other.items) and first.exact and other.exact
        if same:
            items = tuple(join_graphs([a, b]) for a, b in zip(first.items, other.items, strict=True))
        else:
            items = _distinct(first.items, other.items, False)
        first = Graph(
            first.heads | other.heads,
            first.tails | other.tails,
            first.empty or other.empty,
            first.pairs | other.pairs,
            items,
            same,
            first.ordered and other.ordered,
        )
    return first


def join(first: Value, second: Value) -> Value:
    """What holds of both values: all that either may be."""
    if first == second:
        return first
    if isinstance(first, Graph) or isinstance(second, Graph):
        return join_graphs([as_graph(first), as_graph(second)])
    return Flowing(first.raw | second.raw, first.through | second.through)


def _distinct(first: Iterable[Graph], second: Iterable[Graph], exact: bool) -> tuple[Graph, ...]:
    """The items of both; each once where their number means nothing any more."""
    items = (*first, *second)
    return items if exact else tuple(dict.fromkeys(items))
