"""Findings as one page of HTML that needs nothing else: counts, filters, source excerpts, and each fix as a diff.

Everything stands in the page as text, so that it prints, and is found by a search, without its script; the script only
filters. A content security policy lets no other script or style run than the page's own.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections import Counter
from difflib import unified_diff
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from torchlint import __version__
from torchlint.reports.context import place_in_cell
from torchlint.reports.output import visible
from torchlint.reports.summary import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlint.diagnostics import Diagnostic, FileReport, FixRecord
    from torchlint.reports.context import Context, FileText

_WIDEST = 400
# Between lines of a `pre`. Each of them begins with an element: no line of the page begins with what is in a file.
_NEWLINE = "\n"
_CONTEXT_LINES = 2


def render(reports: Sequence[FileReport], context: Context) -> str:
    """The page."""
    style, script = _asset("html_page.css"), _asset("html_page.js")
    policy = f"default-src 'none'; style-src {_source_of(style)}; script-src {_source_of(script)}; base-uri 'none'"
    found = [report for report in reports if report.findings]
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>torchlint report</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n<header>\n<h1>torchlint report</h1>\n"
        f'<p class="total">{_total(found, len(reports))}</p>\n</header>\n',
        *_errors(reports),
        *_tables(found, context),
        *_filters(found, context),
        "<main>\n",
        *(_file(report, context) for report in found),
        f"</main>\n<script>{script}</script>\n</body>\n</html>\n",
    ]
    return "".join(parts)


def _asset(name: str) -> str:
    return resources.files("torchlint.reports").joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _source_of(content: str) -> str:
    """What allows exactly this content in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _text(text: str) -> str:
    """Text from a file or a rule, as HTML that shows it."""
    return escape(visible(text))


def _total(found: Sequence[FileReport], files: int) -> str:
    findings = sum(len(report.findings) for report in found)
    where = f"{len(found)} of {counted(files, 'file')}"
    return f"torchlint {__version__} found {counted(findings, 'issue')} in {where}."


def _errors(reports: Sequence[FileReport]) -> Iterator[str]:
    for report in reports:
        for message in (report.unreadable, *report.errors):
            if message:
                yield f'<p class="error">{_text(message)}</p>\n'


# Counts


def _tables(found: Sequence[FileReport], context: Context) -> Iterator[str]:
    findings = [finding for report in found for finding in report.findings]
    names = {finding.code: finding.name for finding in findings}
    fixable = Counter(finding.code for finding in findings if finding.fix)
    rules = Counter(finding.code for finding in findings)
    folders: Counter[str] = Counter()
    for report in found:
        folders[_folder(report, context)] += len(report.findings)
    yield (
        '<div class="tables">\n<section id="rules"><h2>By rule</h2><table><tr><th class="count">findings</th>'
        '<th class="count">fixable</th><th>rule</th></tr>\n'
    )
    for code, count in sorted(rules.items(), key=lambda row: (-row[1], row[0])):
        label = f"{_text(code)} {_text(names[code])}"
        yield (
            f'<tr><td class="count">{count}</td><td class="count">{fixable[code]}</td>'
            f"<td>{_button('rule', code, label)}</td></tr>\n"
        )
    yield (
        '</table></section>\n<section id="folders"><h2>By folder</h2><table>'
        '<tr><th class="count">findings</th><th>folder</th></tr>\n'
    )
    for folder, count in sorted(folders.items(), key=lambda row: (-row[1], row[0])):
        yield f'<tr><td class="count">{count}</td><td>{_button("folder", _text(folder), _text(folder))}</td></tr>\n'
    yield "</table></section>\n</div>\n"


def _button(key: str, value: str, label: str) -> str:
    """A button that sets a filter; the value and the label are HTML."""
    return f'<button type="button" data-filter="{key}" data-value="{value}">{label}</button>'


def _folder(report: FileReport, context: Context) -> str:
    return os.path.dirname(context.shown(report.path)) or "."


def _filters(found: Sequence[FileReport], context: Context) -> Iterator[str]:
    names = {finding.code: finding.name for report in found for finding in report.findings}
    levels = sorted({finding.level for report in found for finding in report.findings})
    folders = sorted({_folder(report, context) for report in found})
    rules = [(code, f"{code} {name}") for code, name in sorted(names.items())]
    yield '<form hidden autocomplete="off">\n'
    yield _select("rule", "Rule", rules)
    yield _select("level", "Level", [(level, level) for level in levels])
    yield _select("folder", "Folder (and below)", [(folder, folder) for folder in folders])
    yield (
        '<label>Text<input type="search" name="text" placeholder="message, code, path"></label>\n'
        '<label class="check"><input type="checkbox" name="fixable"> fixable only</label>\n'
        '<button type="reset">Show all</button>\n<output id="shown"></output>\n</form>\n'
    )


def _select(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    choices = "".join(f'<option value="{_text(value)}">{_text(shown)}</option>' for value, shown in options)
    return f'<label>{label}<select name="{name}"><option value="">all</option>{choices}</select></label>\n'


# Findings


def _file(report: FileReport, context: Context) -> str:
    path, folder = _text(context.shown(report.path)), _text(_folder(report, context))
    text = context.text(report)
    articles = "".join(_article(finding, path, folder, text) for finding in report.findings)
    return f'<section class="file"><h2>{path} ({len(report.findings)})</h2>\n{articles}</section>\n'


def _article(finding: Diagnostic, path: str, folder: str, text: FileText) -> str:
    """One finding; `path` and `folder` are HTML."""
    place = place_in_cell(finding) or f"line {finding.location.row}, column {finding.location.column}"
    fix = finding.fix.applicability if finding.fix else ""
    return (
        f'<article data-rule="{_text(finding.code)}" data-level="{finding.level}" data-fix="{fix}" '
        f'data-folder="{folder}" data-path="{path}">\n'
        f'<h3><a href="{_text(finding.url)}">{_text(finding.code)}</a> {_text(finding.message)}</h3>\n'
        f'<div class="place"><span class="level">{finding.level}</span> {place} · {_text(finding.name)}</div>\n'
        f"{_excerpt(finding)}{_fix(finding.fix, text)}</article>\n"
    )


def _excerpt(finding: Diagnostic) -> str:
    """The source lines, the place marked on the first of its own."""
    lines = finding.excerpt.lines
    if not lines:
        return ""
    width = len(str(finding.excerpt.row + len(lines) - 1))
    rows = []
    for row, line in enumerate(lines, finding.excerpt.row):
        code = _marked(finding, line) if row == finding.location.row else _text(line[:_WIDEST])
        rows.append(f'<span class="row">{row:>{width}} </span>{code}')
    return f'<pre class="excerpt">{_NEWLINE.join(rows)}</pre>\n'


def _marked(finding: Diagnostic, line: str) -> str:
    start = finding.location.column - 1
    on_one_line = finding.end_location.row == finding.location.row
    end = finding.end_location.column - 1 if on_one_line else len(line.rstrip())
    shift = max(start - _WIDEST // 2, 0)
    end = min(end, shift + _WIDEST)
    return (
        f"{_text(line[shift:start])}<mark>{_text(line[start:end])}</mark>"
        f"{_text(line[max(start, end) : shift + _WIDEST])}"
    )


def _fix(fix: FixRecord | None, text: FileText) -> str:
    if fix is None:
        return ""
    reason = f" ({_text(fix.reason)})" if fix.reason else ""
    title = f"{_text(fix.applicability)} fix: {_text(fix.message)}{reason}"
    rows = [_diff_row(line) for line in _diff(fix, text)]
    if not rows:
        return f'<div class="fix">{title}</div>\n'
    return f'<details class="fix"><summary>{title}</summary><pre class="diff">{_NEWLINE.join(rows)}</pre></details>\n'


def _diff_row(line: str) -> str:
    kind = {"+": "plus", "-": "minus", "@": "hunk"}.get(line[:1], "same")
    return f'<span class="{kind}">{_text(line[:_WIDEST])}</span>'


def _diff(fix: FixRecord, text: FileText) -> Iterator[str]:
    """The hunks of the fix's unified diff."""
    around = text.around(fix.edits or (), _CONTEXT_LINES)
    if around is None:
        return
    before, after = (_lines(part) for part in around)
    for number, line in enumerate(unified_diff(before, after, n=_CONTEXT_LINES, lineterm="")):
        # The headers name files; the line numbers of the hunks, of which the first needs no header, are not the file's.
        if number > 2:
            yield "@@" if line.startswith("@@") else line


def _lines(text: str) -> list[str]:
    """The lines; what follows the last newline counts only if there is something."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines if lines[-1] else lines[:-1]
