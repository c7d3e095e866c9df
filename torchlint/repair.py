"""The repairs of one file: made pass after pass, then written, shown as a diff, or handed back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from torchlint.engine import UNUSED_SUPPRESSION, Checked
from torchlint.fixing.apply import Applied, Failure, WriteError, fix_source, write_atomically

if TYPE_CHECKING:
    from torchlint.checker import Plan
    from torchlint.diagnostics import Diagnostic, FileReport
    from torchlint.rule import Finding, Fix
    from torchlint.source import SourceFile

Lint = Callable[["SourceFile"], Checked]


@dataclass(frozen=True, slots=True)
class Placed:
    """A finding as `fixing` asks for it: `offset` counts characters in the text."""

    code: str
    offset: int
    fix: Fix | None


@dataclass(frozen=True, slots=True)
class Repaired:
    """A file before and after its repairs; `source is before` where none held."""

    before: SourceFile
    source: SourceFile
    applied: tuple[Applied, ...]
    failures: tuple[Failure, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """A message for each fix that was not made."""
        return tuple(
            f"{self.before.path}:{f'cell {failure.cell}:' if failure.cell else ''}{failure.line}: "
            f"{failure.code} was not fixed: {failure.reason}"
            for failure in self.failures
        )


def repair(source: SourceFile, lint: Lint, unsafe: bool) -> Repaired:
    """Apply the fixes of what `lint` finds, then delete the suppressions that silence nothing any more."""

    def others(text: SourceFile) -> list[Placed]:
        return [_placed(text, finding) for finding in lint(text).findings if finding.rule.code != UNUSED_SUPPRESSION]

    def suppressions(text: SourceFile) -> list[Placed]:
        return [_placed(text, finding) for finding in lint(text).findings if finding.rule.code == UNUSED_SUPPRESSION]

    # A repair may leave a suppression without a purpose. That is no new finding to reject it for: it comes second.
    first = fix_source(source, others, unsafe)
    second = fix_source(first.source, suppressions, unsafe)
    applied, failures = (*first.applied, *second.applied), (*first.failures, *second.failures)
    return Repaired(source, second.source, applied, failures)


def deliver(repaired: Repaired, plan: Plan, report: FileReport, left: tuple[Diagnostic, ...]) -> FileReport:
    """Do with the repaired file what the plan says. `report` is on the file as it was; `left` is found in it now."""
    fixed = dict(sorted(Counter(applied.code for applied in repaired.applied).items()))
    data = repaired.source.encode()
    if plan.action == "fix":
        try:
            write_atomically(repaired.before.path, data, expected_old=repaired.before.raw)
        except WriteError as error:
            return msgspec.structs.replace(report, errors=(*report.errors, f"error: {error}"))
        return msgspec.structs.replace(report, findings=left, fixed=fixed)
    if plan.action == "diff":
        before, after = (raw.decode(repaired.before.encoding) for raw in (repaired.before.raw, data))
        diff = unified(plan.shown, before, after)
        return msgspec.structs.replace(report, findings=left, fixed=fixed, diff=diff)
    return msgspec.structs.replace(report, findings=left, fixed=fixed, fixed_source=data)


def _placed(source: SourceFile, finding: Finding) -> Placed:
    return Placed(finding.rule.code, source.span(finding.node)[0], finding.fix)


def unified(path: str, before: str, after: str) -> str:
    """The unified diff of two texts of a file; `path` is what its header shows."""
    import difflib

    lines = difflib.unified_diff(_lines(before), _lines(after), path, path)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    r"""The lines with their newlines. A lone `\r` ends none here: `patch` knows `\n` alone."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
