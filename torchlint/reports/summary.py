"""The last line of a text report: what was found, what was repaired, what could be."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlint.diagnostics import FileReport


def found_line(reports: Sequence[FileReport], files: int) -> str:
    """ "Found 12 issues (5 fixable with `--fix`, 3 more with `--unsafe-fixes`) in 40 files."."""
    findings = [finding for report in reports for finding in report.findings]
    fixed = sum(sum(report.fixed.values()) for report in reports)
    where = f"in {counted(files, 'file')}"
    if not findings:
        return f"Fixed {counted(fixed, 'issue')}; nothing is left {where}." if fixed else f"All checks passed {where}."
    safe = sum(1 for finding in findings if finding.fix and finding.fix.is_safe)
    unsafe = sum(1 for finding in findings if finding.fix and not finding.fix.is_safe)
    offers = [f"{safe} fixable with `--fix`"] if safe else []
    if unsafe:
        offers.append(f"{unsafe}{' more' if safe else ' fixable'} with `--{'' if safe else 'fix --'}unsafe-fixes`")
    offer = f" ({', '.join(offers)})" if offers else ""
    start = f"Fixed {counted(fixed, 'issue')}. " if fixed else ""
    return f"{start}Found {counted(len(findings), 'issue')}{offer} {where}."


def fixed_line(reports: Sequence[FileReport]) -> str:
    """What a `--fix-only` run says."""
    return f"Fixed {counted(sum(sum(report.fixed.values()) for report in reports), 'issue')}."


def diff_line(reports: Sequence[FileReport]) -> str:
    """What a `--diff` run says at its end."""
    changed = [report for report in reports if report.fixed]
    fixed = sum(sum(report.fixed.values()) for report in changed)
    if not fixed:
        return "No file would be changed."
    return f"Would fix {counted(fixed, 'issue')} in {counted(len(changed), 'file')}."


def counted(number: int, noun: str, plural: str = "") -> str:
    """ "1 file", "2 files"."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"
