"""Whether two versions of a workload compute the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .records import Deviation, Policy, Values
from .statistics import same_distribution

Outputs = Mapping[str, torch.Tensor]

SIGNIFICANCE = 0.001
"""The probability with which equal distributions are called different, over all values of a workload together."""


def flatten(outputs: Any, prefix: str = "") -> dict[str, torch.Tensor]:
    """What a workload returned, by name: tensors on the host, numbers as tensors, "gradients/conv.weight" for nested.

    Raises TypeError for what is neither tensor, number, mapping nor sequence.
    """
    match outputs:
        case torch.Tensor():
            return {prefix: outputs.detach().cpu()}
        case bool() | int() | float():
            return {prefix: torch.tensor(outputs, dtype=torch.float64)}
        case Mapping():
            items = list(outputs.items())
        case list() | tuple():
            items = list(enumerate(outputs))
        case _:
            raise TypeError(f"`run` returned a {type(outputs).__name__} as {prefix or 'its result'}")
    flat: dict[str, torch.Tensor] = {}
    for name, value in items:
        flat |= flatten(value, f"{prefix}/{name}" if prefix else str(name))
    return flat


def compare(before: Outputs, after: Outputs, policy: Policy, rtol: float = 0.0, atol: float = 0.0) -> Values:
    """Compare value by value, bit for bit or within |before - after| <= atol + rtol * |before|."""
    deviations = []
    largest = 0.0
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in before or name not in after:
            deviations.append(Deviation(name, f"only there {'after' if name in after else 'before'} the fix"))
            continue
        deviation, difference = _deviation(name, before[name], after[name], policy, rtol, atol)
        deviations += [deviation] if deviation else []
        largest = max(largest, difference)
    if policy is Policy.BITWISE:
        rtol = atol = 0.0
    return Values(policy, len(before), largest, rtol, atol, tuple(deviations))


def compare_distributions(before: Sequence[Outputs], after: Sequence[Outputs]) -> Values:
    """Compare runs with different seeds: the mean and the spread of each value over the runs, by a KS test.

    Runs are independent of each other while the elements of one tensor are not, so each run counts once.
    """
    names = list(before[0])
    missing = [Deviation(name, "not there in both versions") for name in {*before[0]} ^ {*after[0]}]
    shared = [name for name in names if name in after[0]]
    limit = SIGNIFICANCE / max(2 * len(shared), 1)
    deviations = []
    largest = 0.0
    for name in shared:
        for statistic in ("mean", "spread"):
            samples = [[_statistic(run[name], statistic) for run in runs] for runs in (before, after)]
            difference = abs(math.fsum(samples[0]) / len(before) - math.fsum(samples[1]) / len(after))
            largest = max(largest, difference)
            probability = same_distribution(*samples)
            if not probability > limit:
                message = f"its {statistic} over {len(before)} seeds is distributed otherwise (p = {probability:.1g})"
                deviations.append(Deviation(name, message, difference))
    return Values(Policy.DISTRIBUTION, len(names), largest, deviations=(*missing, *deviations))


def _statistic(tensor: torch.Tensor, statistic: str) -> float:
    values = tensor.double().flatten()
    if statistic == "mean":
        return float(values.mean())
    return float(values.std(correction=0))


def _deviation(
    name: str, before: torch.Tensor, after: torch.Tensor, policy: Policy, rtol: float, atol: float
) -> tuple[Deviation | None, float]:
    """What is not the same in one value, and the largest absolute difference of its elements."""
    if before.shape != after.shape or before.dtype != after.dtype:
        shapes = [f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in (before, after)]
        return Deviation(name, f"{shapes[0]} before, {shapes[1]} after"), 0.0
    if before.numel() == 0 or _same_bits(before, after):
        return None, 0.0
    first, second = (_wide(tensor) for tensor in (before, after))
    undefined = first.isnan() != second.isnan()
    difference = (first - second).abs().nan_to_num(nan=0.0, posinf=math.inf)
    largest = float(difference.max())
    if policy is Policy.BITWISE:
        return Deviation(name, f"not bit for bit the same, by at most {largest:.3g}", largest), largest
    # Infinities of one sign differ by NaN and are the same; NaN must meet NaN.
    if bool(undefined.any()):
        return Deviation(name, "NaN in one version only", largest), largest
    allowed = atol + rtol * first.abs().nan_to_num(nan=0.0, posinf=0.0)
    if bool((difference > allowed).any()):
        return Deviation(name, f"differs by up to {largest:.3g}, beyond the tolerance", largest), largest
    return None, largest


def _same_bits(before: torch.Tensor, after: torch.Tensor) -> bool:
    bits = [tensor.contiguous().flatten().view(torch.uint8) for tensor in (before, after)]
    return torch.equal(*bits)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor.double()
