"""DataLoaders: their arguments, what their dataset does for an item, and how often they are drawn from."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint import torch_api
from torchlint.semantics.names import last_name, path_of

if TYPE_CHECKING:
    from torchlint.semantics.module import Module
    from torchlint.semantics.names import Function, Scope
    from torchlint.semantics.values import Value

_LOADER = "torch.utils.data.DataLoader"
# What an item of memory may go through and still be only an index: making it a tensor, or another dtype or shape of it.
_CHEAP_CALLS = frozenset(
    "tensor as_tensor from_numpy float long int half double bool to astype view reshape unsqueeze squeeze clone detach "
    "len item dict tuple list str copy array asarray Tensor FloatTensor LongTensor size max min abs range is_tensor "
    "isinstance contiguous index_select ascontiguousarray permute transpose narrow".split()
)


def loader_argument(call: ast.Call, name: str) -> ast.expr | None:
    """What is passed to DataLoader for `name`, by keyword or by position."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    position = torch_api.PARAMETER_NAMES[_LOADER].index(name)
    return call.args[position] if position < len(call.args) else None


def may_hide_arguments(call: ast.Call) -> bool:
    """Whether `*args` or `**kwargs` may carry an argument."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def in_memory(module: Module, call: ast.Call) -> bool:
    """Whether the dataset is shown to only index memory, with no work for an item or batch."""
    dataset = loader_argument(call, "dataset")
    if dataset is None or _does_work(module, loader_argument(call, "collate_fn")):
        return False
    return _indexes_memory(module, module.value(dataset))


def _does_work(module: Module, collate: ast.expr | None) -> bool:
    return collate is not None and not (isinstance(collate, ast.Constant) and collate.value is None)


def _indexes_memory(module: Module, value: Value) -> bool:
    if value.kind in ("list", "tuple", "range", "tensor", "ndarray", "dict"):
        return not (value.kind == "tensor" and value.opaque)
    if value.kind not in ("dataset", "instance"):
        return False
    if value.items:
        return all(_indexes_memory(module, part) for part in value.items)
    if value.name in torch_api.MEMORY_DATASETS:
        return True
    return ":" in value.name and module.indexes_memory(value.name)


def getter_indexes_memory(module: Module, getter: Function) -> bool:
    """Whether a dataset's `__getitem__` only indexes what `__init__` holds: no decoding, no transform, no file."""
    receiver = getter.self_name
    for node in ast.walk(getter.node):
        if isinstance(node, (ast.With, ast.AsyncWith, ast.Await)):
            return False
        if isinstance(node, ast.Call):
            callee = last_name(node.func)
            if callee not in _CHEAP_CALLS or (path_of(node.func) or "").startswith(f"{receiver}.transform"):
                return False
    return True


def is_iterable_dataset(module: Module, call: ast.Call) -> bool:
    """Whether the loader's dataset is, or may be, an IterableDataset: every worker would repeat its items."""
    dataset = loader_argument(call, "dataset")
    if dataset is None:
        return False
    candidates = [dataset]
    if isinstance(dataset, ast.Name):
        candidates += [bound for bound in module.scope_of(dataset).bindings.get(dataset.id, ()) if bound is not None]
    return any(_streams(module, module.value(candidate).name) for candidate in candidates)


def _streams(module: Module, name: str) -> bool:
    if name.startswith(torch_api.STREAMING_PREFIXES):
        return True
    return "torch.utils.data.IterableDataset" in (module.bases_of(name) if ":" in name else [name])


_DEEPEST_NAMES = 4  # a loader's dataset, its transform, the list in it, and the function in that


def holds_local_code(module: Module, node: ast.AST, depth: int = 0) -> bool:
    """Whether a lambda or a nested function reaches an expression, in it or through the names in it: what holds one
    cannot be pickled, so no spawned process can have it (Python documentation, `pickle`).
    """
    for part in ast.walk(node):
        if isinstance(part, ast.Lambda):
            return True
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and _is_local_code(module, part, depth):
            return True
    return False


def _is_local_code(module: Module, name: ast.Name, depth: int) -> bool:
    scope: Scope | None = module.scope_of(name)
    while scope is not None and name.id not in scope.bindings:
        scope = scope.parent
    if scope is None:
        return False
    if any(f.name == name.id and f.scope.parent is scope and scope.function is not None for f in module.functions):
        return True
    values = [value for value in scope.bindings[name.id] if value is not None]
    return depth < _DEEPEST_NAMES and any(holds_local_code(module, value, depth + 1) for value in values)


def drawn_once(module: Module, call: ast.Call) -> bool:
    """Whether all that the loader is used for is one `next(iter(loader))`."""
    if _is_drawn(module, call):
        return True
    statement = module.parents.get(call)
    if (
        not isinstance(statement, ast.Assign)
        or len(statement.targets) != 1
        or not isinstance(statement.targets[0], ast.Name)
    ):
        return False
    name = statement.targets[0].id
    scope = module.scope_of(statement)
    uses = [
        node
        for node in ast.walk(scope.node)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    return bool(uses) and len(scope.bindings.get(name, [])) == 1 and all(_is_drawn(module, node) for node in uses)


def _is_drawn(module: Module, node: ast.expr) -> bool:
    """Whether `node` stands in `next(iter(node))`, outside any loop."""
    inner = module.parents.get(node)
    outer = module.parents.get(inner) if inner is not None else None
    return (
        isinstance(inner, ast.Call)
        and last_name(inner.func) == "iter"
        and isinstance(outer, ast.Call)
        and last_name(outer.func) == "next"
        and next(module.regions.loops_around(outer), None) is None
    )
