"""Findings as SARIF 2.1.0, within the limits of GitHub's code scanning.

Columns count UTF-16 code units, the standard's default, from 1. A finding in a notebook stands on the line of the JSON
that holds it; its cell, with row and column there, is in the message and in the properties.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from torchlint import __version__
from torchlint.diagnostics import DOCUMENTATION, Location
from torchlint.fingerprints import Fingerprints
from torchlint.reports.context import place_in_cell
from torchlint.reports.encoding import encode
from torchlint.source import common_affixes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlint.diagnostics import Diagnostic, FileReport, FixRecord
    from torchlint.reports.context import Context, FileText
    from torchlint.rule import Rule

# "SARIF support for code scanning", GitHub's documentation: 25,000 results a run, 20 runs a file.
RESULTS_PER_RUN = 25_000
RUNS = 20
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASE = "%SRCROOT%"
_LEVEL = {"warning": "warning", "info": "note"}
_SEVERITY = {"warning": "warning", "info": "recommendation"}


def render(reports: Sequence[FileReport], context: Context) -> str:
    """The log: one run, or several where there are more results than one may hold. What not even those hold is cut, and
    a notification in each run says so.
    """
    results = [result for report in reports for result in _results(report, context)]
    chunks = [results[start : start + RESULTS_PER_RUN] for start in range(0, len(results), RESULTS_PER_RUN)] or [[]]
    invocation = _invocation(reports, len(results))
    runs = [_run(chunk, context, invocation) for chunk in chunks[:RUNS]]
    if len(runs) > 1:
        # Code scanning takes one run of a tool and category; the id before the last slash is the category.
        for number, run in enumerate(runs, 1):
            run["automationDetails"] = {"id": f"torchlint-{number}/"}
    return encode({"$schema": _SCHEMA, "version": "2.1.0", "runs": runs})


def _invocation(reports: Sequence[FileReport], results: int) -> dict[str, Any]:
    """How the run went: what failed, and how many of its results do not fit in."""
    messages = [message for report in reports for message in (report.unreadable, *report.errors) if message]
    notifications = [{"level": "error", "message": {"text": message}} for message in messages]
    left_out = results - RESULTS_PER_RUN * RUNS
    if left_out > 0:
        text = f"{left_out} of {results} results are left out: {RUNS} runs of {RESULTS_PER_RUN} are all there can be"
        notifications.append({"level": "warning", "message": {"text": text}})
    return {"executionSuccessful": not messages, "toolExecutionNotifications": notifications}


def _run(results: list[dict[str, Any]], context: Context, invocation: dict[str, Any]) -> dict[str, Any]:
    codes = sorted({result["ruleId"] for result in results})
    numbers = {code: number for number, code in enumerate(codes)}
    return {
        "tool": {
            "driver": {
                "name": "torchlint",
                "version": __version__,
                "informationUri": DOCUMENTATION.removesuffix("rules/"),
                "rules": [_rule(context.registry[code]) for code in codes],
            }
        },
        "columnKind": "utf16CodeUnits",
        "originalUriBaseIds": {_BASE: {"description": {"text": "The root of the repository."}}},
        "invocations": [invocation],
        "results": [{**result, "ruleIndex": numbers[result["ruleId"]]} for result in results],
    }


def _rule(rule: type[Rule]) -> dict[str, Any]:
    page = rule.page()
    summary = " ".join(page.split("\n\n")[0].split())
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": summary},
        "fullDescription": {"text": summary},
        "help": {"text": page, "markdown": page},
        "helpUri": f"{DOCUMENTATION}{rule.code.lower()}/",
        "defaultConfiguration": {"level": _LEVEL[rule.level.value]},
        "properties": {
            "tags": ["performance", "pytorch", rule.family()],
            "problem.severity": _SEVERITY[rule.level.value],
        },
    }


def _results(report: FileReport, context: Context) -> Iterator[dict[str, Any]]:
    if not report.findings:
        return
    text, fingerprints = context.text(report), Fingerprints()
    artifact = _artifact(report.path, context)
    for finding in report.findings:
        yield _result(finding, artifact, text, fingerprints.of(context.shown(report.path), finding))


def _artifact(path: str, context: Context) -> dict[str, str]:
    """The location of a file: relative to the root of the repository where it lies there."""
    relative = context.relative(path)
    if relative is None:
        return {"uri": Path(path).as_uri()}
    return {"uri": quote(os.fsencode(relative)), "uriBaseId": _BASE}


def _result(finding: Diagnostic, artifact: dict[str, str], text: FileText, fingerprint: str) -> dict[str, Any]:
    place = place_in_cell(finding)
    location = {
        "physicalLocation": {"artifactLocation": artifact, "region": _region(finding, text)},
        **({"logicalLocations": [{"name": f"cell {finding.cell}", "kind": "cell"}]} if finding.cell else {}),
    }
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": _LEVEL[finding.level],
        "message": {"text": f"{place}: {finding.message}" if place else finding.message},
        "locations": [location],
        "partialFingerprints": {"torchlintFinding/v1": fingerprint},
    }
    if finding.cell:
        where = {"cell": finding.cell, "row": finding.location.row, "column": finding.location.column}
        result["properties"] = where
    fix = _fix(finding, artifact, text)
    return {**result, "fixes": [fix]} if fix else result


def _region(finding: Diagnostic, text: FileText) -> dict[str, Any]:
    first, last = text.file_rows(finding)
    index = finding.location.row - finding.excerpt.row
    lines = finding.excerpt.lines[index : index + 1] if index >= 0 else ()
    if finding.cell:
        return {"startLine": first, "endLine": last}
    columns = _span(text, finding.location, finding.end_location)
    return {**columns, **({"snippet": {"text": lines[0]}} if lines and first == last else {})}


def _span(text: FileText, start: Location, end: Location) -> dict[str, int]:
    """A region of a plain file."""
    return {
        "startLine": start.row,
        "startColumn": text.units(0, start) + 1,
        "endLine": end.row,
        "endColumn": text.units(0, end) + 1,
    }


def _fix(finding: Diagnostic, artifact: dict[str, str], text: FileText) -> dict[str, Any] | None:
    fix = finding.fix
    if fix is None or not fix.edits:
        return None
    replacements = _json_replacements(fix, text) if finding.cell else _replacements(fix, text)
    if not replacements:
        return None
    reason = f" ({fix.reason})" if fix.reason else ""
    return {
        "description": {"text": f"{fix.applicability} fix: {fix.message}{reason}"},
        "artifactChanges": [{"artifactLocation": artifact, "replacements": replacements}],
    }


def _replacements(fix: FixRecord, text: FileText) -> list[dict[str, Any]]:
    return [
        {
            "deletedRegion": _span(text, edit.location, edit.end_location),
            "insertedContent": {"text": edit.content},
        }
        for edit in fix.edits or ()
    ]


def _json_replacements(fix: FixRecord, text: FileText) -> list[dict[str, Any]]:
    """The change of a notebook's JSON, as one replacement from the first character that changes to the last."""
    edited = text.edited(fix.edits or ())
    if edited is None or edited.notebook is None:
        return []
    before = edited.notebook.json
    after = edited.notebook.to_json()
    start, end = common_affixes(before, after)
    deleted = {
        key: value
        for prefix, offset in (("start", start), ("end", len(before) - end))
        for key, value in zip((f"{prefix}Line", f"{prefix}Column"), _line_and_column(before, offset), strict=True)
    }
    return [{"deletedRegion": deleted, "insertedContent": {"text": after[start : len(after) - end]}}]


def _line_and_column(text: str, offset: int) -> tuple[int, int]:
    """The line and the column, in UTF-16 code units, of an offset; both count from 1."""
    before = text[text.rfind("\n", 0, offset) + 1 : offset]
    return text.count("\n", 0, offset) + 1, len(before) + sum(character > "\uffff" for character in before) + 1
