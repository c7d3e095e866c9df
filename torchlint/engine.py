"""One file: from a parsed `Module` to findings, and from findings to records.

Rules run one by one, and one that raises costs one message. What they find is reduced to one finding for each line and
code, then suppression comments silence some, and those that silence nothing become findings themselves.
"""

from __future__ import annotations

import ast
import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from torchlint.diagnostics import Diagnostic, EditRecord, Excerpt, FixRecord, Location
from torchlint.rule import Finding, Fix, Rule, Safety
from torchlint.suppressions import Suppressions

if TYPE_CHECKING:
    from torchlint.semantics import Module
    from torchlint.source import Edit, SourceError, SourceFile

SYNTAX_ERROR = "TL000"
UNUSED_SUPPRESSION = "TL001"

_DEFINITION = re.compile(r"(?:async\s+)?(?:def|class)\s+\w+")
_LONGEST_ERROR = 300
_LONGEST_LINE = 2_000

Registry = Mapping[str, type[Rule]]


@dataclass(frozen=True, slots=True)
class Checked:
    """What the rules say of one file: findings in source order, and messages about rules that raised.

    `expires` says that the answer depends on the day, because a suppression has an expiry date.
    """

    findings: tuple[Finding, ...]
    errors: tuple[str, ...] = ()
    expires: bool = False


def check_module(
    module: Module, codes: Iterable[str], registry: Registry, today: datetime.date | None = None
) -> Checked:
    """Run the rules with these codes on a module whose project facts are attached."""
    enabled = frozenset(codes)
    found: list[Finding] = []
    errors: list[str] = []
    for code in sorted(enabled):
        if _passes_screen(registry[code], module.source.text):
            findings, error = _run_rule(registry[code], module)
            found += findings
            errors += error
    suppressions = Suppressions.read(module.source, module.tree, today or datetime.date.today())
    kept = [f for f in _one_per_line(module.source, found) if not _is_silenced(f, suppressions)]
    if UNUSED_SUPPRESSION in enabled and not errors:
        unused = _unused_suppressions(module.source, suppressions, enabled, registry)
        kept += [f for f in unused if not suppressions.silence_unused(f.node.lineno, f.rule.code, f.rule.name)]
        kept.sort(key=lambda finding: _order(module.source, finding))
    return Checked(tuple(kept), tuple(errors), suppressions.expire)


def to_diagnostics(source: SourceFile, findings: Iterable[Finding], build_edits: bool) -> list[Diagnostic]:
    """Findings as records; a fix that cannot be built is left out. With `build_edits` the others carry their edits."""
    return [_diagnostic(source, finding, build_edits) for finding in findings]


def syntax_diagnostic(rule: type[Rule], error: SourceError, source: SourceFile | None) -> Diagnostic:
    """The finding for what cannot be parsed; `source` is None where there is not even a text."""
    line, column, cell, excerpt = error.line, error.column, 0, Excerpt(error.line, ())
    if source is not None:
        line = min(line, len(source.line_starts))
        column = min(column, len(source.line(line)) + 1)
        excerpt = _excerpt(source, line)
        if source.notebook is not None and source.notebook.cells:
            cell, line = source.cell_position(line)
    here = Location(line, column)
    return Diagnostic(rule.code, rule.name, error.message, rule.level.value, here, here, cell, excerpt)


def _passes_screen(rule: type[Rule], text: str) -> bool:
    return not rule.screen or any(word in text for word in rule.screen)


def _run_rule(rule: type[Rule], module: Module) -> tuple[list[Finding], list[str]]:
    """All findings of one rule, or none and a message where it raised."""
    try:
        return list(rule().check(module)), []
    except Exception as error:
        return [], [internal_error(rule.code, str(module.source.path), error)]


def internal_error(what: str, path: str, error: BaseException) -> str:
    """The message for an exception that should not have been: one line, whatever the exception's text holds."""
    text = " ".join(str(error).split())[:_LONGEST_ERROR]
    return f"internal error: {what} on {path}: {type(error).__name__}: {text}"


def _one_per_line(source: SourceFile, findings: Iterable[Finding]) -> list[Finding]:
    """The findings in order, the leftmost of each line and code."""
    seen: set[tuple[int, str]] = set()
    kept = []
    for finding in sorted(findings, key=lambda finding: _order(source, finding)):
        place = finding.node.lineno, finding.rule.code
        if place not in seen:
            seen.add(place)
            kept.append(finding)
    return kept


def _order(source: SourceFile, finding: Finding) -> tuple[int, str, int, str]:
    start, end = _range(source, finding.node)
    return start, finding.rule.code, end, finding.message


def _is_silenced(finding: Finding, suppressions: Suppressions) -> bool:
    return suppressions.silence(finding.node.lineno, finding.rule.code, finding.rule.name)


def _unused_suppressions(
    source: SourceFile, suppressions: Suppressions, enabled: frozenset[str], registry: Registry
) -> Iterator[Finding]:
    known = {code: rule.name for code, rule in registry.items()}
    defaults = {code for code, rule in registry.items() if rule.default}
    judge_unknown = not getattr(registry, "withheld", False)  # a plain mapping holds all rules there are
    for unused in suppressions.unused(source, enabled, known, enabled >= defaults, judge_unknown):
        fix = Fix("delete what silences nothing", Safety.SAFE, partial(_one_edit, *unused.edit))
        yield Finding(registry[UNUSED_SUPPRESSION], _node_at(source, unused.start, unused.end), unused.message, fix)


def _one_edit(start: int, end: int, content: str) -> list[Edit]:
    from torchlint.source import Edit

    return [Edit(start, end, content)]


def _node_at(source: SourceFile, start: int, end: int) -> ast.expr:
    """A node that stands for a comment, which the tree does not hold. Both offsets are on one line."""
    line, _ = source.position(start)
    line_start = source.line_starts[line - 1]
    columns = [len(source.text[line_start:offset].encode("utf-8", "surrogatepass")) for offset in (start, end)]
    return ast.Constant(None, lineno=line, col_offset=columns[0], end_lineno=line, end_col_offset=columns[1])


def _range(source: SourceFile, node: ast.expr | ast.stmt) -> tuple[int, int]:
    """The characters that a report underlines: an expression, `def name`, or the first line of a statement."""
    start, end = source.span(node)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        name = _DEFINITION.match(source.text, start)
        return start, name.end() if name else end
    if isinstance(node, ast.stmt) and getattr(node, "body", None):
        line_end = source.line_starts[node.lineno - 1] + len(source.line(node.lineno))
        return start, min(end, line_end)
    return start, end


def _diagnostic(source: SourceFile, finding: Finding, build_edits: bool) -> Diagnostic:
    rule = finding.rule
    start, end = _range(source, finding.node)
    location, end_location = _location(source, start), _location(source, end)
    cell = source.cell_position(finding.node.lineno)[0] if source.notebook else 0
    fix = _fix_record(source, finding.fix, build_edits) if finding.fix else None
    excerpt = _excerpt(source, finding.node.lineno)
    return Diagnostic(
        rule.code, rule.name, finding.message, rule.level.value, location, end_location, cell, excerpt, fix
    )


def _location(source: SourceFile, offset: int) -> Location:
    line, column = source.position(offset)
    return Location(source.cell_position(line)[1] if source.notebook else line, column)


def _fix_record(source: SourceFile, fix: Fix, build_edits: bool) -> FixRecord | None:
    if not build_edits:
        from torchlint.fixing.splice import can_build

        if not can_build(fix.build):
            return None
        return FixRecord(fix.safety.value, fix.message, fix.reason)
    edits = build(fix)
    if not edits:
        return None
    records = tuple(_edit_record(source, edit) for edit in sorted(edits))
    return FixRecord(fix.safety.value, fix.message, fix.reason, records)


def _edit_record(source: SourceFile, edit: Edit) -> EditRecord:
    cell = source.cell_position(source.position(edit.start)[0])[0] if source.notebook else 0
    return EditRecord(edit.content, _location(source, edit.start), _location(source, edit.end), cell)


def build(fix: Fix) -> Sequence[Edit] | None:
    """The edits of a fix, None where it cannot be built: libcst and the layout of the text may both refuse."""
    try:
        return fix.build()
    except Exception:
        return None


def _excerpt(source: SourceFile, line: int) -> Excerpt:
    """The line with those right above and below it, inside the same cell and without blank ones at the edges."""
    first, last = max(line - 1, 1), min(line + 1, len(source.line_starts))
    cell = None
    if source.notebook and source.notebook.cells:
        cell, row = source.cell_position(line)
        first, last = max(first, line - row + 1), last if source.cell_position(last)[0] == cell else line
    else:
        row = line
    while first < line and not source.line(first).strip():
        first += 1
    while last > line and not source.line(last).strip():
        last -= 1
    lines = tuple(source.line(number)[:_LONGEST_LINE] for number in range(first, last + 1))
    return Excerpt(row - (line - first), lines)
