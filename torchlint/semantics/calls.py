"""What calls give: the meaning of a callee for `flow`, and what a call does for regions."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from torchlint import torch_api
from torchlint.semantics.callables import result_of_callable
from torchlint.semantics.members import iteration, published_name, result
from torchlint.semantics.method_calls import method_call, tensor_method
from torchlint.semantics.module_calls import module_call
from torchlint.semantics.project_calls import call_member, note_call, unknown_call
from torchlint.semantics.symbol_calls import loader_mark, symbol_call
from torchlint.semantics.values import DEVICE, EMPTY_LIST, NDARRAY, NUMBER, OPAQUE, STRING, TENSOR, UNKNOWN, Value

if TYPE_CHECKING:
    from torchlint.semantics.call_arguments import Keywords
    from torchlint.semantics.flow import Env, Flow


def call(
    flow: Flow,
    node: ast.Call,
    callee: Value,
    positional: list[Value],
    keywords: Keywords,
    env: Env,
    starred: bool,
) -> Value:
    """The value of a call, noting what it does for regions."""
    kind = callee.kind
    if positional and isinstance(node.func, ast.Attribute) and node.func.attr in torch_api.LOGGER_WRAPPER_METHODS:
        # `for x, y in logger.log_every(loader, 10)`: the loader's batches, whatever the logger is
        return Value("iterator", name=loader_mark(positional[0]), items=(iteration(positional[0]),))
    if kind == "unknown":
        return unknown_call(flow, node, positional, keywords, starred)
    if kind == "symbol":
        return symbol_call(flow, node, callee.name, positional, keywords)
    if kind == "tensor" and callee.name and isinstance(node.func, ast.Attribute):
        # `batch.keys()`, `outputs.to(device)`: a method of an opaque value after all
        base = flow.values.get(node.func.value, OPAQUE)
        return tensor_method(flow, node, base, callee.name, positional, keywords)
    if kind == "method":
        return method_call(flow, node, callee.items[0], callee.name, positional, keywords, env, starred)
    if kind == "function" or kind == "bound":
        note_call(flow, node, callee.name, positional, keywords, starred, bound=kind == "bound")
        return flow.module.function_result(callee.name)
    if kind == "lambda" or kind == "either":
        return result_of_callable(flow, node, callee, positional, keywords)
    if kind == "class":
        note_call(flow, node, callee.name, positional, keywords, starred, bound=True)
        return instance(flow, callee.name, positional, keywords)
    if kind == "module":
        return module_call(flow, node, callee, positional, keywords, starred)
    if kind == "instance" and ":" in callee.name:
        return call_member(flow, node, callee, "__call__", positional, keywords, starred)
    if kind == "ref":
        note_call(flow, node, callee.name, positional, keywords, starred)
        return OPAQUE if torch_api.returns_tensor(published_name(callee.name)) else result(callee.name)
    if kind == "metric":
        return Value("tensor", dtype="float", grad=False)
    return UNKNOWN


def instance_of(flow: Flow, cls: Value) -> Value:
    """A value of the class or type `cls`, as an annotation means it."""
    if cls.kind == "class":
        return instance(flow, cls.name, [], [])
    if cls.kind == "ref":
        return result(cls.name)
    if cls.kind != "symbol":
        return UNKNOWN
    return _instance_of_symbol(cls.name)


@lru_cache(maxsize=65536)
def _instance_of_symbol(name: str) -> Value:
    """A value of an external class or type, by its canonical name."""
    if name in ("torch.Tensor", "torch.nn.Parameter") or name in torch_api.LEGACY_CONSTRUCTORS:
        return TENSOR
    if name in ("torch.FloatTensor", "torch.cuda.FloatTensor"):
        return TENSOR
    if name in torch_api.MODULE_BASES or name in ("torch.nn.ModuleList", "torch.nn.Sequential"):
        return Value("module", name="" if name == "torch.nn.Module" else name)
    if name in ("builtins.int", "builtins.float", "builtins.bool", "builtins.complex"):
        return NUMBER
    if name == "builtins.str":
        return STRING
    if name in ("builtins.list", "typing.List"):
        return EMPTY_LIST
    if name in ("numpy.ndarray", "numpy.typing.NDArray"):
        return NDARRAY
    if name == "torch.device":
        return DEVICE
    if name == "torch.optim.Optimizer":
        return Value("optimizer", name=name)
    made = torch_api.class_kind(name)
    if made:
        return Value(made, name=name)
    return UNKNOWN


def instance(flow: Flow, class_id: str, positional: list[Value], keywords: Keywords) -> Value:
    known = torch_api.class_kind(published_name(class_id))
    if known in ("accelerator", "metric"):
        return Value(known, name=published_name(class_id))
    family = flow.module.class_family(class_id)
    if family == "module":
        return Value("module", name=class_id, host=True)
    if family in ("dataset", "loader", "optimizer", "scheduler"):
        return Value(family, name=class_id, host=True)
    return Value("instance", name=class_id)
