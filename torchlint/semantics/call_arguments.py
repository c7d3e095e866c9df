"""Arguments of calls: looking one up, and what they say of the device of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.semantics.values import Value, tensor_parts

if TYPE_CHECKING:
    from torchlint.semantics.flow import Flow


Keywords = list[tuple[str, Value]]


def keyword_value(keywords: Keywords, name: str) -> Value | None:
    for key, value in keywords:
        if key == name:
            return value
    return None


def is_cpu(value: Value) -> bool:
    return value.name == "cpu" and value.kind in ("device", "string")


def factory_host(flow: Flow, keywords: Keywords) -> bool:
    device = keyword_value(keywords, "device")
    if any(key == "**" for key, _ in keywords):
        return False
    if device is None or device.kind == "none":
        return not flow.module.default_device_changed
    return is_cpu(device)


def all_host(values: list[Value]) -> bool:
    """Operands of one operation share a device: Host where one is, and none is known to be elsewhere."""
    parts = [part for value in values for part in tensor_parts(value)]
    return bool(parts) and all(part.host for part in parts)
