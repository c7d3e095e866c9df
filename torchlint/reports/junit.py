"""Findings as failed tests in JUnit's XML: a suite for each file, a test for each finding."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from torchlint.reports.context import place_in_cell
from torchlint.reports.output import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlint.diagnostics import Diagnostic, FileReport
    from torchlint.reports.context import Context


def render(reports: Sequence[FileReport], context: Context) -> str:
    """The document. XML has no control characters, so they are shown escaped. A run without findings is one passed
    test, since services take a report without tests for a broken one.
    """
    root = Element("testsuites", name="torchlint")
    for report in reports:
        if report.findings or report.errors or report.unreadable:
            _add_suite(root, report, context)
    if not len(root):
        suite = SubElement(root, "testsuite", name="torchlint", tests="1", failures="0", errors="0")
        SubElement(suite, "testcase", name="no findings", classname="torchlint")
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{tostring(root, encoding='unicode')}\n"


def _add_suite(root: Element, report: FileReport, context: Context) -> None:
    path = visible(context.shown(report.path))
    errors = [*report.errors, *([report.unreadable] if report.unreadable else [])]
    tests, failures = len(report.findings) + len(errors), len(report.findings)
    suite = SubElement(root, "testsuite", name=path, tests=str(tests), failures=str(failures), errors=str(len(errors)))
    text = context.text(report)
    for finding in report.findings:
        _add_failure(suite, path, finding, text.file_row(finding))
    for message in errors:
        case = SubElement(suite, "testcase", name="torchlint", classname=path, file=path)
        SubElement(case, "error", message=visible(message))


def _add_failure(suite: Element, path: str, finding: Diagnostic, row: int) -> None:
    case = SubElement(
        suite, "testcase", name=f"{finding.code} {finding.name}", classname=path, file=path, line=str(row)
    )
    failure = SubElement(case, "failure", message=visible(finding.message), type=finding.level)
    place = place_in_cell(finding) or f"line {finding.location.row}, column {finding.location.column}"
    # No line may begin with what comes from a file: two colons there are a command to GitHub Actions.
    code = [f"{row} | {visible(line)}" for row, line in enumerate(finding.excerpt.lines, finding.excerpt.row)]
    failure.text = "\n".join((f"{place} of {path}", *code, finding.url))
