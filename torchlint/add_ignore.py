"""`--add-ignore`: a suppression comment for every finding, for projects that adopt torchlint step by step."""

from __future__ import annotations

import ast
import datetime
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.comments import Spans, find_spans
from torchlint.engine import SYNTAX_ERROR, UNUSED_SUPPRESSION
from torchlint.fixing.apply import WriteError, write_atomically
from torchlint.reports.output import display_path, visible
from torchlint.reports.summary import counted
from torchlint.source import Edit, SourceError, SourceFile
from torchlint.suppressions import Directive, Suppressions, lines_around, rewrite_names, statement_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torchlint.checker import Plan
    from torchlint.diagnostics import Diagnostic, FileReport


def add_ignores(reports: Sequence[FileReport], plans: Mapping[str, Plan], quiet: bool) -> bool:
    """Write the comments into the files of the reports; whether anything went wrong."""
    added = files = 0
    failed = False
    for report in reports:
        findings = [finding for finding in report.findings if finding.code not in (SYNTAX_ERROR, UNUSED_SUPPRESSION)]
        if not findings or not plans[report.path].may_write:
            continue
        try:
            _annotate(Path(report.path), findings)
        except (OSError, SourceError, WriteError) as error:
            failed = True
            print(f"error: {display_path(report.path)}: no comment was added: {visible(str(error))}", file=sys.stderr)
        else:
            added, files = added + len(findings), files + 1
    if not quiet:
        print(f"Silenced {counted(added, 'issue')} in {counted(files, 'file')}.")
    return failed


def _annotate(path: Path, findings: Iterable[Diagnostic]) -> None:
    source = SourceFile.read(path)
    edited = with_ignores(source, findings)
    write_atomically(path, edited.encode(), expected_old=source.raw)


def with_ignores(source: SourceFile, findings: Iterable[Diagnostic]) -> SourceFile:
    """The source with a comment for each finding. Raises SourceError where there is no place for one."""
    tree = source.parse()
    wanted: dict[int, set[str]] = defaultdict(set)
    for finding in findings:
        wanted[_line_of(source, finding)].add(finding.code)
    edited = source.edited(_Annotator(source, tree).edits(wanted))
    if ast.dump(edited.parse()) != ast.dump(tree):
        raise SourceError("a comment would change the code")
    return edited


def _line_of(source: SourceFile, finding: Diagnostic) -> int:
    """The line in the source's text, which in a notebook holds all code cells."""
    row = finding.location.row
    if source.notebook is None:
        return row
    cells = zip(source.notebook.cells, source.notebook.start_lines, strict=True)
    return next(start for cell, start in cells if cell.number == finding.cell) + row - 1


class _Annotator:
    """Finds the places for comments in one file."""

    def __init__(self, source: SourceFile, tree: ast.Module) -> None:
        self._source = source
        self._spans: Spans = find_spans(source.python)
        self._ranges = statement_lines(source, tree)
        self._directives = Suppressions.read(source, tree, datetime.date.today()).directives

    def edits(self, wanted: Mapping[int, set[str]]) -> list[Edit]:
        """The edits that silence the codes `wanted` by line."""
        merged: dict[int, set[str]] = defaultdict(set)
        new: dict[int, set[str]] = defaultdict(set)
        for line, codes in wanted.items():
            directive = next((index for index, known in enumerate(self._directives) if _can_hold(known, line)), None)
            if directive is not None:
                merged[directive] |= codes
            else:
                new[self._place_for(line)] |= codes
        edits = [self._extend(self._directives[index], codes) for index, codes in merged.items()]
        return edits + [self._append(line, codes) for line, codes in new.items()]

    def _extend(self, directive: Directive, codes: set[str]) -> Edit:
        names = directive.names or ()
        return Edit(*rewrite_names(self._source, directive, [*names, *sorted(codes.difference(names))]))

    def _append(self, line: int, codes: set[str]) -> Edit:
        start, text = self._source.line_starts[line - 1], self._source.line(line)
        comment = f"  # torchlint: ignore[{', '.join(sorted(codes))}]"
        return Edit(start + len(text.rstrip()), start + len(text), comment)

    def _place_for(self, line: int) -> int:
        """The first line of the statement on `line`, that line before all others, where a comment may end the line."""
        around = sorted(
            {number for lines in lines_around(self._ranges, line) for number in range(lines.first, lines.last + 1)}
        )
        for candidate in (line, *around):
            if self._can_end_in_comment(candidate):
                return candidate
        raise SourceError("no line of the statement can hold a comment", line)

    def _can_end_in_comment(self, line: int) -> bool:
        end = self._source.line_starts[line - 1] + len(self._source.line(line))
        if any(start < end < stop for start, stop in self._spans.strings):
            return False
        is_commented = any(start < end <= stop for start, stop in self._spans.comments)
        return is_commented or not self._source.line(line).endswith("\\")


def _can_hold(directive: Directive, line: int) -> bool:
    """Whether codes added to a directive silence findings on `line`."""
    in_reach = any(line in lines for lines in directive.reach)
    return directive.kind == "ignore" and directive.names is not None and not directive.void and in_reach
