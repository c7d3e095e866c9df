"""What kind of value an expression is: the records, and how two of them agree.

A `Value` says as much as flow shows and no more; `UNKNOWN` is silence. Values are small, immutable and storable, so
that the same record serves inside a file and in the summary that other files read.
"""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a value.

    kind: "tensor", "module", "optimizer", "loader", "ndarray", "number", "list", … or "unknown".
    name: the qualified name of a symbol, or of the class of a module or instance ("torch.nn.Linear", "pkg.net:Net").
    items: elements of a tuple, the one element kind of a list or iterator, the values of a dict (beside `keys`), what
        a dataset takes its items from (or may be) where that is another.
    host: for a tensor, that flow shows it to be in CPU memory; for a module or loader, that nothing moved it.
    dtype: for a tensor "float", "int", "bool" or "" where it is not known.
    grad: for a tensor, that it may carry an autograd graph.
    sure: False for a tensor that may still be the number it started as (`loss = 0`, then `loss += …` in a loop).
    opaque: a tensor-like result whose structure is not known (a batch, a model's output): its parts are tensors too.
    """

    kind: str
    name: str = ""
    items: tuple[Value, ...] = ()
    keys: tuple[str, ...] = ()
    host: bool = False
    dtype: str = ""
    grad: bool = True
    opaque: bool = False
    sure: bool = True

    @property
    def is_tensor(self) -> bool:
        return self.kind == "tensor"

    @property
    def element(self) -> Value:
        """What iterating over this value gives."""
        kind = self.kind
        if kind == "tensor":
            return self
        if kind in ("list", "iterator", "set"):
            return self.items[0] if self.items else UNKNOWN
        if kind == "tuple":
            return join_all(self.items)
        if kind == "dict":
            return STRING if self.keys else UNKNOWN
        if kind == "loader":
            return self.items[0] if self.items else BATCH
        if kind == "ndarray":
            return NDARRAY
        if kind == "range":
            return NUMBER
        if kind == "string":
            return STRING
        return UNKNOWN


UNKNOWN = Value("unknown")
PLAIN = Value("unknown", grad=False)  # unknown, but no tensor with a graph
NONE = Value("none")
NUMBER = Value("number")
STRING = Value("string")
NDARRAY = Value("ndarray")
OPTIMIZER = Value("optimizer")
MODULE = Value("module")
TENSOR = Value("tensor")
OPAQUE = Value("tensor", opaque=True)
BATCH = Value("tensor", host=True, opaque=True, grad=False)
PARAMETER = Value("tensor", dtype="float")
EMPTY_LIST = Value("list")
EMPTY_DICT = Value("dict")
DEVICE = Value("device")
CPU = Value("device", name="cpu")
SHAPE = Value("list", items=(NUMBER,))

# Kinds whose values differ only in what they are named: two of them agree on the kind.
_NAMED_KINDS = frozenset(
    {
        "module",
        "optimizer",
        "loader",
        "scheduler",
        "dataset",
        "scaler",
        "metric",
        "distribution",
        "device",
        "accelerator",
    }
)
_CALLABLES = frozenset({"function", "bound", "lambda", "either"})
_MOST_FUNCTIONS = 8
_MOST_PARTS = 500


def container(kind: str, items: tuple[Value, ...], keys: tuple[str, ...] = ()) -> Value:
    """A container of these items. One that would hold a great many parts in all holds unknown ones: `x = (x, x)`, a few
    dozen times, has more than memory can hold.
    """
    if _has_many_parts(items):
        return Value("list" if kind == "tuple" else kind, items=(UNKNOWN,))
    return Value(kind, items=items, keys=keys)


def _has_many_parts(items: tuple[Value, ...]) -> bool:
    """Whether containers in these hold a great many parts: a long tuple of plain values does not."""
    count, queue = 0, [part for item in items if item.items for part in item.items]
    while queue and count <= _MOST_PARTS:
        count += 1
        queue += queue.pop().items
    return count > _MOST_PARTS


def join(a: Value, b: Value) -> Value:
    """What both values agree on. None agrees with anything: what is used later is the other one."""
    if a is b or a == b:
        return a
    kind = a.kind
    if kind == "none":
        return b
    if b.kind == "none":
        return a
    if kind != b.kind:
        if {kind, b.kind} == {"number", "tensor"}:
            return msgspec.structs.replace(a if kind == "tensor" else b, sure=False)
        if {kind, b.kind} == {"list", "tuple"}:
            return Value("list", items=_join_elements(_as_list(a).items, _as_list(b).items))
        if kind in _CALLABLES and b.kind in _CALLABLES:
            return _either(a, b)
        return UNKNOWN if may_carry_graph(a) or may_carry_graph(b) else PLAIN
    if kind == "tensor":
        return Value(
            "tensor",
            host=a.host and b.host,
            dtype=a.dtype if a.dtype == b.dtype else "",
            grad=a.grad or b.grad,
            opaque=a.opaque or b.opaque,
            sure=a.sure and b.sure,
        )
    if kind == "dataset" and (a.name != b.name or a.items or b.items):
        parts = dict.fromkeys([*dataset_parts(a), *dataset_parts(b)])
        return Value("dataset", name=a.name if a.name == b.name else "", host=a.host and b.host, items=tuple(parts))
    if kind in _NAMED_KINDS:
        return Value(
            kind,
            name=a.name if a.name == b.name else "",
            host=a.host and b.host,
            items=_join_elements(a.items, b.items),
        )
    if kind in ("list", "iterator", "set"):
        return Value(kind, items=_join_elements(a.items, b.items))
    if kind == "tuple":
        if len(a.items) == len(b.items):
            return Value("tuple", items=tuple(map(join, a.items, b.items)))
        return Value("list", items=_join_elements(_as_list(a).items, _as_list(b).items))
    if kind == "dict":
        if a.keys == b.keys:
            return Value("dict", keys=a.keys, items=tuple(map(join, a.items, b.items)))
        return Value("dict", items=_join_elements(_as_list(a).items, _as_list(b).items))
    if kind in ("number", "string", "ndarray"):
        return Value(kind)
    return _either(a, b) if kind in _CALLABLES else UNKNOWN


def _either(a: Value, b: Value) -> Value:
    """One of several functions: what calling it gives is what all of them give."""
    parts = dict.fromkeys([*(a.items if a.kind == "either" else (a,)), *(b.items if b.kind == "either" else (b,))])
    return Value("either", items=tuple(parts)) if len(parts) <= _MOST_FUNCTIONS else UNKNOWN


def join_all(values: tuple[Value, ...] | list[Value]) -> Value:
    """What all values agree on; UNKNOWN for none at all."""
    if not values:
        return UNKNOWN
    result = values[0]
    for value in values[1:]:
        result = join(result, value)
    return result


def dataset_parts(value: Value) -> tuple[Value, ...]:
    """What a dataset takes its items from in the end: itself, or what it is a view of."""
    return value.items if value.kind == "dataset" and value.items else (value,)


def _as_list(value: Value) -> Value:
    """A tuple or dict with its element kinds folded into one."""
    if not value.items:
        return value
    return Value(value.kind, items=(join_all(value.items),))


def _join_elements(a: tuple[Value, ...], b: tuple[Value, ...]) -> tuple[Value, ...]:
    """Element kinds of two containers; an empty one says nothing about elements."""
    if not a:
        return b
    if not b:
        return a
    return (join(a[0], b[0]),) if len(a) == len(b) == 1 else (join_all([*a, *b]),)


def may_carry_graph(value: Value) -> bool:
    """Whether a value may be or hold a tensor with a graph: numbers, arrays and detached tensors do not."""
    if value.kind in ("tensor", "unknown"):
        return value.grad
    if value.kind in ("list", "tuple", "dict", "iterator", "set"):
        return any(may_carry_graph(item) for item in value.items)
    return value.kind in ("ref", "instance", "lambda", "either")


def tensor_parts(value: Value) -> list[Value]:
    """The tensors that `value` is or holds (elements of lists, tuples and dicts)."""
    if value.kind == "tensor":
        return [value]
    if value.kind in ("list", "tuple", "dict", "iterator", "set"):
        return [part for item in value.items for part in tensor_parts(item)]
    return []
