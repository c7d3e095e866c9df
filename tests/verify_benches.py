"""Small workloads for the tests of the harness, with a version fixed by hand where one is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.runtime_verify.children import Limits
from torchlint.runtime_verify.verification import Options
from torchlint.runtime_verify.workload import Workload, read_workload

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = Limits(seconds=60, memory=4 * 2**30)

READS = """\
\"\"\"Reads its sum on each of four steps.\"\"\"
import torch

CLAIMS = ("host_syncs",)


def setup(device, scale):
    return torch.arange(100_000 * scale, dtype=torch.float32).to(device)


def run(state):
    total = 0.0
    for _ in range(4):
        total += float(state.sum())
    return {"total": total}
"""
READS_ONCE = READS.replace("float(state.sum())", "state.sum()").replace('"total": total', '"total": float(total)')


def options(**changes: object) -> Options:
    """Few pairs, one thread, on the CPU."""
    settings = {"device": "cpu", "gpus": 0, "threads": 1, "pairs": 5, "limits": LIMITS, "quick": True, **changes}
    return Options(**settings)


def bench(folder: Path, before: str, after: str | None = None, code: str = "TL101") -> Workload:
    """A workload of the rule `code`; without `after` torchlint has to fix it."""
    place = folder / f"{code.lower()}_rule"
    place.mkdir()
    (place / "bench.py").write_text(before, encoding="utf-8")
    if after is not None:
        (place / "bench_fixed.py").write_text(after, encoding="utf-8")
    return read_workload(place / "bench.py", code, "rule")
