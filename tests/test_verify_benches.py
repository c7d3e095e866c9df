"""The workloads that ship: each holds its rule's habit and nothing else, and keeps what the harness asks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torchlint import Rule, all_rules
from torchlint.checker import Plan
from torchlint.config import Settings
from torchlint.discovery import Project
from torchlint.runner import Run
from torchlint.runtime_verify.workload import (
    NOT_AT_RUN_TIME,
    Workload,
    make_versions,
    workloads,
)
from torchlint.selection import default_registry

if TYPE_CHECKING:
    from pathlib import Path

BENCHES = workloads()
FIXABLE = [rule for rule in all_rules() if rule.fixable and rule.code not in NOT_AT_RUN_TIME]


def findings(path: Path) -> list[str]:
    """The codes of what all rules find in a file that is a project of its own."""
    plan = Plan(str(path), path.name, frozenset(default_registry()), Settings(), (2, 11))
    (report,) = Run(Project(str(path.parent), (str(path),), (str(path),)), [plan], default_registry(), 1).reports()
    assert not report.errors
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize("rule", FIXABLE, ids=lambda rule: rule.code)
def test_a_fixable_rule_has_a_workload(rule: type[Rule]) -> None:
    assert rule.code in BENCHES
    assert BENCHES[rule.code].fixed is None, "what is measured has to be torchlint's own fix"


@pytest.mark.parametrize("workload", BENCHES.values(), ids=BENCHES)
def test_a_workload_holds_its_rule_alone_and_the_fix_removes_it(workload: Workload, tmp_path: Path) -> None:
    versions = make_versions(workload, tmp_path)
    assert set(findings(versions.before / "bench.py")) == {workload.code}
    assert findings(versions.after / "bench.py") == []
    assert versions.diff
    assert bool(versions.safety) is (workload.fixed is None)


@pytest.mark.parametrize("workload", BENCHES.values(), ids=BENCHES)
def test_a_workload_says_what_it_is_and_what_falls(workload: Workload) -> None:
    pytest.importorskip("torch")
    from torchlint.runtime_verify.counters import DESCRIPTIONS

    assert workload.summary.endswith(".")
    assert set(workload.claims) <= set(DESCRIPTIONS)


@pytest.mark.parametrize("code", ["TL201", "TL405", "TL501"])
def test_a_shipped_fix_keeps_its_values_and_shows_its_mechanism(code: str) -> None:
    pytest.importorskip("torch")
    from verify_benches import options

    from torchlint.runtime_verify.records import Verdict
    from torchlint.runtime_verify.verification import verify

    row = verify(BENCHES[code], options())
    assert row.verdict not in (Verdict.FAILED, Verdict.DIFFERS), row
    assert row.claimed
    assert row.values is not None
    assert row.values.same
