"""What formats ask beside the findings: the texts of files, the rules, and the folder where relative paths start."""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.source import Edit, SourceError, SourceFile, spliced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torchlint.diagnostics import Diagnostic, EditRecord, FileReport, Location
    from torchlint.engine import Registry


@dataclass(frozen=True)
class Context:
    """`root` is the absolute folder at which relative paths start; `overlay` holds contents by absolute path that stand
    in for those on the disk (standard input).
    """

    root: str
    registry: Registry
    overlay: Mapping[str, bytes] = field(default_factory=dict)

    def relative(self, path: str) -> str | None:
        """The posix path from the root, None where the file does not lie below it."""
        prefix = self.root.rstrip(os.sep) + os.sep
        return path[len(prefix) :].replace(os.sep, "/") if path.startswith(prefix) else None

    def shown(self, path: str) -> str:
        """The posix path from the root, the absolute one for a file that does not lie below it."""
        return self.relative(path) or path.replace(os.sep, "/")

    def places(self, reports: Iterable[FileReport]) -> Iterator[tuple[str, Diagnostic, FileText]]:
        """Each finding with the path that is shown for its file, and the file's text."""
        for report in reports:
            if report.findings:
                path, text = self.shown(report.path), self.text(report)
                for finding in report.findings:
                    yield path, finding, text

    def text(self, report: FileReport) -> FileText:
        """The text of the file of a report as it is now."""
        data = report.fixed_source if report.fixed_source is not None else self.overlay.get(report.path)
        path = Path(report.path)
        try:
            return FileText(SourceFile.read(path) if data is None else SourceFile.from_bytes(path, data))
        except (OSError, SourceError):
            return FileText(None)


class FileText:
    """A file's text, asked for by the places that findings name. `source` is None where there is no text.

    A place that the text does not have (the file has changed since it was linted) gives an empty line.
    """

    def __init__(self, source: SourceFile | None) -> None:
        self.source = source

    def line(self, cell: int, row: int) -> str:
        """A line without its newline; in a notebook, `row` counts in the cell."""
        number = self._number(cell, row)
        return self.source.line(number) if self.source is not None and number is not None else ""

    def units(self, cell: int, place: Location) -> int:
        """How many UTF-16 code units stand before a place on its line."""
        before = self.line(cell, place.row)[: place.column - 1]
        missing = place.column - 1 - len(before)
        return len(before) + sum(character > "\uffff" for character in before) + missing

    def file_row(self, finding: Diagnostic) -> int:
        """The line of the file itself on which a finding stands: for a notebook, the line of its JSON."""
        return self.file_rows(finding)[0]

    def file_rows(self, finding: Diagnostic) -> tuple[int, int]:
        """The first and the last line of the file itself that a finding covers."""
        first, last = finding.location.row, finding.end_location.row
        if not finding.cell:
            return first, last
        return self._json_row(finding.cell, first), self._json_row(finding.cell, last)

    def edited(self, edits: Sequence[EditRecord]) -> SourceFile | None:
        """The file after the edits of a fix, None where they do not fit the text."""
        if self.source is None:
            return None
        placed = self._placed(edits)
        try:
            return self.source.edited(placed) if placed else None
        except ValueError:
            return None

    def around(self, edits: Sequence[EditRecord], margin: int) -> tuple[str, str] | None:
        """The lines that edits touch, and `margin` more before and behind, as they are and as they will be; None where
        the edits do not fit the text.
        """
        placed = self._placed(edits)
        if self.source is None or not placed:
            return None
        starts = self.source.line_starts
        first = max(bisect_right(starts, placed[0].start) - 1 - margin, 0)
        last = bisect_right(starts, max(edit.end for edit in placed)) + margin
        begin, end = starts[first], starts[last] if last < len(starts) else len(self.source.text)
        before = self.source.text[begin:end]
        try:
            return before, spliced(before, [Edit(e.start - begin, e.end - begin, e.content) for e in placed])
        except ValueError:
            return None

    def _placed(self, edits: Sequence[EditRecord]) -> list[Edit]:
        """The edits by offsets, sorted; none where one of them has no place in the text."""
        placed = []
        for edit in edits:
            start, end = self._offset(edit.cell, edit.location), self._offset(edit.cell, edit.end_location)
            if start is None or end is None:
                return []
            placed.append(Edit(start, end, edit.content))
        return sorted(placed)

    def _offset(self, cell: int, place: Location) -> int | None:
        number = self._number(cell, place.row)
        if self.source is None or number is None:
            return None
        return self.source.line_starts[number - 1] + place.column - 1

    def _number(self, cell: int, row: int) -> int | None:
        """The line in the source's text, which for a notebook holds all code cells."""
        if self.source is None:
            return None
        number = row
        if cell and self.source.notebook is not None:
            index = self._cells.get(cell)
            if index is None:
                return None
            number = self.source.notebook.start_lines[index] + row - 1
        return number if 1 <= number <= len(self.source.line_starts) else None

    @cached_property
    def _cells(self) -> dict[int, int]:
        assert self.source is not None
        assert self.source.notebook is not None
        return {cell.number: index for index, cell in enumerate(self.source.notebook.cells)}

    @cached_property
    def _json_starts(self) -> list[int]:
        assert self.source is not None
        assert self.source.notebook is not None
        return list(accumulate((len(line) + 1 for line in self.source.notebook.json.split("\n")), initial=0))

    def _json_row(self, cell: int, row: int) -> int:
        """The line of the notebook's JSON that holds a row of a cell; 1 where the notebook is not what it was."""
        number = self._number(cell, row)
        if self.source is None or self.source.notebook is None or number is None:
            return 1
        index = self._cells[cell]
        strings = self.source.notebook.cells[index].strings
        first = self.source.notebook.start_lines[index]
        offset = self.source.line_starts[number - 1] - self.source.line_starts[first - 1]
        ends = list(accumulate(len(string.value) for string in strings))
        if not strings:
            return 1
        string = strings[min(bisect_right(ends, offset), len(strings) - 1)]
        return bisect_right(self._json_starts, string.start)


def repository_root(folder: str) -> str:
    """The nearest folder with a `.git`, from an absolute folder upwards; where there is none, the folder itself."""
    candidate = folder
    while not os.path.exists(os.path.join(candidate, ".git")):
        parent = os.path.dirname(candidate)
        if parent == candidate:
            return folder
        candidate = parent
    return candidate


def place_in_cell(finding: Diagnostic) -> str:
    """For a notebook "cell 3, row 2, column 5", else ""."""
    if not finding.cell:
        return ""
    return f"cell {finding.cell}, row {finding.location.row}, column {finding.location.column}"
