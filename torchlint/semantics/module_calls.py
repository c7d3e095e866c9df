"""What a module applied to its input gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint import torch_api
from torchlint.semantics.call_arguments import Keywords, all_host
from torchlint.semantics.project_calls import note_call
from torchlint.semantics.values import Value

if TYPE_CHECKING:
    import ast

    from torchlint.semantics.flow import Flow


def module_call(
    flow: Flow, node: ast.Call, callee: Value, positional: list[Value], keywords: Keywords, starred: bool
) -> Value:
    """A module applied to its input."""
    name = callee.name
    inside = flow.module.in_module_class(node)
    if not torch_api.is_light(name):
        attribute_of_self = flow.module.index.path(node.func) or ""
        flow.events[node] = "layer" if inside and attribute_of_self.startswith("self.") else "forward"
    values = [*positional, *(v for _, v in keywords)]
    host = all_host(values) and callee.host
    if ":" in name:
        function_id = flow.module.find_method(name, "forward")
        if function_id is not None:
            note_call(flow, node, function_id, positional, keywords, starred, bound=True)
            result = flow.module.function_result(function_id)
            if result.kind not in ("unknown", "ref", "none"):
                return with_host(result, True) if host and not flow.module.function_moves(function_id) else result
        return Value("tensor", opaque=True, host=host)
    if name in torch_api.PAIR_MODULES:
        part = Value("tensor", dtype="float", host=host)
        return Value("tuple", items=(part, Value("tensor", opaque=True, host=host)))
    if name.startswith("torch.nn.") and not name.endswith(("Sequential", "Transformer", "Module")):
        return Value("tensor", dtype="float" if torch_api.is_loss(name) else "", host=host)
    return Value("tensor", opaque=True, host=host)


def with_host(value: Value, host: bool) -> Value:
    if value.kind == "tensor":
        return Value("tensor", host=host, dtype=value.dtype, grad=value.grad, opaque=value.opaque)
    if value.kind in ("list", "tuple", "dict"):
        return Value(value.kind, name=value.name, keys=value.keys, items=tuple(with_host(v, host) for v in value.items))
    return value
