"""The workloads of the rules: `fixtures/<rule>/bench.py`, and how their fixed version is made.

A bench is an ordinary PyTorch script that holds the habit which its rule finds, and these names:

- `setup(device, scale)` makes the state: the model, the data. It is called after the seed is set.
- `run(state)` does the work, and returns what has to stay the same: tensors and numbers, in mappings or sequences.
- `CLAIMS`: the counters (see `counters.DESCRIPTIONS`) that the fix has to lower. Those that the device does not have
  are left out; an empty tuple means that only time can show the gain.
- `TOLERANCE = (rtol, atol)`, if the rule's fix is unsafe: how far values may be apart.
- `SCALE`: the size to run with for each type of device, 1 where it does not say.
- `SEEDS`, if the fix changes the random stream: over how many seeds distributions are compared where values differ.
- `model_of(state)`, if the fix changes the weights' random stream: the model that is given the same weights.
- `COMPARABLE = False`, if the fixed version computes something else by intent.
- `PROCESSES`: by how many processes it wants to be run, as a gloo group; `NEEDS = "multi-gpu"` or `"gpu"`, what it
  cannot be run without.

These are literals, and are read without running the script. The first line of its docstring says what it does.
"""

from __future__ import annotations

import ast
import importlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchlint.checker import Plan
from torchlint.config import Settings
from torchlint.discovery import Project
from torchlint.repair import unified
from torchlint.runner import Run
from torchlint.selection import default_registry

from .records import Failure, FailureKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlint.diagnostics import FileReport

NOT_AT_RUN_TIME = {
    "TL000": "it is about files that do not parse",
    "TL001": "it is about comments, which do not run",
}
"""Rules that have nothing to measure, and why."""

BEFORE, AFTER = "before", "after"

_TARGET_TORCH = (2, 11)


class BenchError(Exception):
    """A bench does not keep to what this module's docstring says."""


@dataclass(frozen=True)
class Workload:
    """A rule's bench. `fixed` is a version that was fixed by hand, for a rule that has no fix."""

    code: str
    name: str
    path: Path
    summary: str
    claims: tuple[str, ...]
    tolerance: tuple[float, float] = (0.0, 0.0)
    scale: dict[str, int] = field(default_factory=dict)
    seeds: int = 0
    comparable: bool = True
    processes: int = 1
    needs: str = ""
    shares_weights: bool = False
    fixed: Path | None = None


@dataclass(frozen=True)
class Versions:
    """Both versions of a workload: folders that each hold the module `bench`.

    `safety` is that of the least safe of the fixes that were made, "" where they were made by hand.
    """

    before: Path
    after: Path
    safety: str
    diff: str


class NotFixedError(Exception):
    """torchlint does not fix what the bench holds. `failure` says what is left."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def workloads(fixtures: Sequence[Path] | None = None) -> dict[str, Workload]:
    """All benches by the code of their rule. Raises BenchError for one that cannot be read."""
    registry = default_registry()
    found = {}
    for path in sorted(path for folder in fixtures or _fixtures() for path in folder.glob("*/bench.py")):
        code = path.parent.name.partition("_")[0].upper()
        if code in registry and code not in NOT_AT_RUN_TIME:
            found[code] = read_workload(path, code, registry[code].name)
    return found


def _fixtures() -> list[Path]:
    fixtures = importlib.import_module("torchlint.fixtures")
    return [Path(folder) for folder in fixtures.__path__]


def read_workload(path: Path, code: str, name: str) -> Workload:
    """A bench, from the literals in its text. Raises BenchError."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise BenchError(f"{path}: cannot be read: {error}") from error
    given = _literals(tree)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if missing := {"setup", "run"} - functions:
        raise BenchError(f"{path}: does not define {' and '.join(f'`{name}`' for name in sorted(missing))}")
    if not isinstance(given.get("CLAIMS"), tuple):
        raise BenchError(f"{path}: `CLAIMS` has to be a tuple of the counters that the fix lowers")
    fixed = path.with_name("bench_fixed.py")
    return Workload(
        code=code,
        name=name,
        path=path,
        summary=(ast.get_docstring(tree) or "").partition("\n")[0],
        claims=given["CLAIMS"],
        tolerance=given.get("TOLERANCE", (0.0, 0.0)),
        scale=given.get("SCALE", {}),
        seeds=given.get("SEEDS", 0),
        comparable=given.get("COMPARABLE", True),
        processes=given.get("PROCESSES", 1),
        needs=given.get("NEEDS", ""),
        shares_weights="model_of" in functions,
        fixed=fixed if fixed.is_file() else None,
    )


def _literals(tree: ast.Module) -> dict[str, Any]:
    """The names in capitals that a module binds to literals."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue  # an expression of the script's own
    return found


def make_versions(workload: Workload, folder: Path) -> Versions:
    """Copy the bench into `folder` twice, and fix one copy. Raises NotFixedError where nothing or not all is fixed."""
    before, after = folder / BEFORE, folder / AFTER
    for version in (before, after):
        version.mkdir()
        shutil.copyfile(workload.path, version / "bench.py")
    if workload.fixed is not None:
        shutil.copyfile(workload.fixed, after / "bench.py")
        safety = ""
    else:
        safety = _fix(workload.code, after / "bench.py")
    texts = [(version / "bench.py").read_text(encoding="utf-8") for version in (before, after)]
    return Versions(before, after, safety, unified("bench.py", *texts))


def _fix(code: str, path: Path) -> str:
    """Apply all fixes of one rule to a file, and give the safety of the least safe one."""
    found = _run(code, path, "check").findings
    if not found:
        raise NotFixedError(Failure(FailureKind.NOT_FIXED, f"torchlint finds no {code} in the workload"))
    fixes = [finding.fix for finding in found]
    report = _run(code, path, "fix")
    problems = [*report.errors, *report.warnings]
    problems += [f"line {finding.location.row}: {finding.message}" for finding in report.findings]
    if problems:
        text = "\n".join(problems).replace(str(path.parent) + os.sep, "")
        raise NotFixedError(Failure(FailureKind.NOT_FIXED, f"torchlint's fix leaves {code} in the workload", "", text))
    return "unsafe" if any(fix is None or not fix.is_safe for fix in fixes) else "safe"


def _run(code: str, path: Path, action: str) -> FileReport:
    plan = Plan(
        path=str(path),
        relative=path.name,
        codes=frozenset({code}),
        settings=Settings(),
        target_torch=_TARGET_TORCH,
        action=action,
        unsafe=True,
    )
    project = Project(str(path.parent), (str(path),), (str(path),))
    return Run(project, [plan], default_registry(), jobs=1).reports()[0]
