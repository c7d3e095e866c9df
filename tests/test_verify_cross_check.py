"""The linter's findings in a workload and what the profiler saw of it, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch")

import torch

from torchlint.runtime_verify import cross_check
from torchlint.runtime_verify.children import Limits
from torchlint.runtime_verify.patterns import Match
from torchlint.runtime_verify.recording import Site
from torchlint.runtime_verify.workload import Workload, read_workload

if TYPE_CHECKING:
    from pathlib import Path

BENCH = """
\"\"\"A step that zeroes its gradients in every way.\"\"\"
import torch
from torch import nn

CLAIMS = ()


def setup(device, scale):
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),  # both, by where it was built
        nn.BatchNorm2d(4),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    return model, optimizer, scale


def run(state):
    model, optimizer, scale = state
    model(torch.rand(2, 3, 8, 8)).sum().backward()
    optimizer.zero_grad(set_to_none=False)  # both
    model(torch.rand(2, 3, 8, 8)).sum().backward()
    zero = getattr(optimizer, "zero_" + "grad")
    zero(set_to_none=False)  # profiler only
    if scale > 1:
        optimizer.zero_grad(set_to_none=False)  # linter only
        torch.zeros(3).to(model[0].weight.device)  # needs a GPU
    optimizer.step()
    return {}
"""


def bench(folder: Path, text: str = BENCH) -> Workload:
    path = folder / "tl405_planted" / "bench.py"
    path.parent.mkdir()
    path.write_text(text)
    return read_workload(path, "TL405", "planted")


def side_by_side(workload: Workload, seconds: float = 120) -> cross_check.CrossCheck:
    return cross_check.cross_check([workload], "cpu", Limits(seconds, 2**32), 1, lambda name: None)


def test_agreements_and_disagreements_are_told_apart(tmp_path: Path) -> None:
    checked = side_by_side(bench(tmp_path))
    lines = BENCH.split("\n")

    def who(pattern: str, mark: str) -> list[tuple[bool, bool, str]]:
        return [
            (bool(sighting.static), bool(sighting.profiled), sighting.note)
            for sighting in checked.sightings
            if sighting.pattern == pattern and lines[sighting.line - 1].endswith(f"# {mark}")
        ]

    assert who("grads-set-to-zero", "both") == [(True, True, "")]
    assert who("grads-set-to-zero", "profiler only") == [(False, True, "")]
    assert who("grads-set-to-zero", "linter only") == [(True, False, "")]
    assert who("bias-before-norm", "both, by where it was built") == [(True, True, "")]
    assert {sighting.file for sighting in checked.sightings} == {"tl405_planted/bench.py"}
    if not torch.cuda.is_available():
        assert who("create-then-copy", "needs a GPU") == [(True, False, "needs a GPU")]
        assert "create-then-copy: needs a GPU" in checked.notes


def test_what_no_rule_looks_for_is_no_disagreement(monkeypatch: pytest.MonkeyPatch) -> None:
    match = Match("single-tensor-optimizer", Site("/bench.py", 7), Site("/bench.py", 3), "one at a time", 2)
    seen = cross_check.Seen((match,), ())
    assert cross_check.compare("bench.py", (), seen, "/elsewhere/bench.py") == []
    monkeypatch.setattr(cross_check, "default_registry", dict)
    (sighting,) = cross_check.compare("bench.py", (), seen, "/bench.py")
    assert (sighting.line, sighting.count, sighting.note) == (3, 2, "there is no rule TL602")
    monkeypatch.setattr(cross_check, "default_registry", lambda: {"TL602": object})
    (sighting,) = cross_check.compare("bench.py", (), seen, "/bench.py")
    assert sighting.note == ""


def test_a_workload_that_raises_or_hangs_becomes_a_note(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    text = "CLAIMS = ()\ndef setup(device, scale): {}\ndef run(state): pass\n"
    raising = side_by_side(bench(tmp_path / "a", text.format("raise ValueError('no data')")))
    assert raising.sightings == ()
    (note,) = raising.notes
    assert note.startswith("tl405_planted/bench.py could not be profiled")
    assert "ValueError: no data" in note
    hanging = side_by_side(bench(tmp_path / "b", text.format("import time; time.sleep(600)")), seconds=5)
    assert "did not end within 5 s" in hanging.notes[0]
