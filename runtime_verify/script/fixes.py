"""The fixes of a project, made in memory by torchlint's own engine: nothing of the user's is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from torchlint.config import ConfigError, ConfigFinder, overrides_from
from torchlint.discovery import Discovery, Project
from torchlint.planning import Planner
from torchlint.runner import Run
from torchlint.selection import default_registry
from torchlint.source import Edit, SourceFile

if TYPE_CHECKING:
    from torchlint.diagnostics import Diagnostic, FileReport, Location

    from .project_copy import Snapshot

# They report on comments and on what cannot be parsed: their fixes change nothing that runs.
_WITHOUT_EFFECT = frozenset({"TL000", "TL001"})


class Fix(msgspec.Struct, frozen=True):
    """One fix. `file` is relative to the project, `line` counts in the file as it was; `reason` says what an unsafe one
    may change."""

    code: str
    name: str
    file: str
    line: int
    message: str
    safety: str
    reason: str = ""

    @property
    def place(self) -> str:
        """Where it is, as in `train.py:12`."""
        return f"{self.file}:{self.line}"


class Fixed(msgspec.Struct, frozen=True):
    """A project with fixes: the files that they change, by relative path, and which they are."""

    sources: dict[str, bytes]
    fixes: tuple[Fix, ...]
    problems: tuple[str, ...] = ()


Fixer = Callable[["Snapshot", "Selection"], Fixed]


class Selection(msgspec.Struct, frozen=True):
    """Which fixes to make: by selectors as of `--select` (None: what the project's settings say), and by file."""

    codes: tuple[str, ...] | None = None
    unsafe: bool = True
    files: frozenset[str] | None = None


def fix_project(found: Snapshot, selection: Selection) -> Fixed:
    """Make the selected fixes of a project, as `torchlint --fix` would. Raises ConfigError for selectors that mean no
    rule."""
    engine = _Engine(found, selection)
    listed, repaired = engine.reports("check"), engine.reports("fix-source")
    sources = {engine.relative(r): r.fixed_source for r in repaired if r.fixed_source is not None}
    made = {engine.relative(report): report.fixed for report in repaired}
    fixes = [
        _fix(engine.relative(report), finding)
        for report in listed
        for finding in report.findings
        if engine.may_fix(finding) and finding.code in made.get(engine.relative(report), {})
    ]
    warnings = [message for report in repaired for message in (*report.errors, *report.warnings)]
    return Fixed(sources, tuple(fixes), (*engine.problems, *(_without_root(found, text) for text in warnings)))


def fix_once(found: Snapshot, fix: Fix) -> Fixed:
    """Make a single fix, and leave all others."""
    engine = _Engine(found, Selection((fix.code,), True, frozenset({fix.file})))
    for report in engine.reports("check"):
        for finding in report.findings:
            if _fix(engine.relative(report), finding) == fix and finding.fix and finding.fix.edits:
                source = SourceFile.from_bytes(Path(report.path), found.read(fix.file))
                edits = [
                    Edit(_offset(source, edit.location), _offset(source, edit.end_location), edit.content)
                    for edit in finding.fix.edits
                ]
                return Fixed({fix.file: source.edited(edits).encode()}, (fix,))
    return Fixed({}, ())


class _Engine:
    """Runs torchlint on the files of a snapshot."""

    def __init__(self, found: Snapshot, selection: Selection) -> None:
        given: dict[str, Any] = {"unsafe-fixes": selection.unsafe}
        if selection.codes is not None:
            given["select"] = list(selection.codes)
        self._found = found
        self._unsafe = selection.unsafe
        self._registry = default_registry()
        self._configs = ConfigFinder(overrides_from(given, Path.cwd()))
        self._overlay = {str(found.root / file): found.read(file) for file in found.sources}
        self._discovery = Discovery(self._configs)
        self._wanted = {str(found.root / file) for file in found.sources if _is_selected(file, selection.files)}
        self.problems: list[str] = []

    def relative(self, report: FileReport) -> str:
        """The path of a report's file from the project's root."""
        return os.path.relpath(report.path, self._found.root)

    def may_fix(self, finding: Diagnostic) -> bool:
        """Whether a finding has a fix that may be made and has an effect."""
        fix = finding.fix
        return fix is not None and finding.code not in _WITHOUT_EFFECT and (self._unsafe or fix.is_safe)

    def reports(self, action: str) -> list[FileReport]:
        """What the engine says of each file, after the action."""
        reports: list[FileReport] = []
        planner = Planner(self._configs, self._registry, action, build_edits=action == "check")
        for project in self._discovery.projects([str(self._found.root)]):
            targets = tuple(path for path in project.targets if path in self._wanted)
            if targets:
                part = Project(project.root, targets, project.files)
                plans = [
                    msgspec.structs.replace(plan, codes=plan.codes - _WITHOUT_EFFECT) for plan in planner.plans(part)
                ]
                reports += Run(part, plans, self._registry, jobs=1, overlay=self._overlay).reports()
        self.problems = [*dict.fromkeys((*self._configs.problems, *self._discovery.problems, *planner.problems))]
        return reports


def check_selectors(codes: Iterable[str]) -> None:
    """Raise ConfigError where one of the selectors means no rule, or only rules without a fix."""
    from torchlint.selection import expand

    registry = default_registry()
    for selector in codes:
        meant = expand([selector], registry, "--fix-codes") - _WITHOUT_EFFECT
        if not any(registry[code].fixable for code in meant):
            raise ConfigError(f"--fix-codes: {selector} has no fix that could be measured")


def _fix(file: str, finding: Diagnostic) -> Fix:
    record = finding.fix
    return Fix(
        code=finding.code,
        name=finding.name,
        file=file,
        line=finding.location.row,
        message=record.message if record else "",
        safety=record.applicability if record else "",
        reason=record.reason if record else "",
    )


def _is_selected(file: str, files: frozenset[str] | None) -> bool:
    return files is None or file in files


def _offset(source: SourceFile, location: Location) -> int:
    return source.line_starts[location.row - 1] + location.column - 1


def _without_root(found: Snapshot, text: str) -> str:
    return text.replace(f"{found.root}{os.sep}", "")


def by_code(fixes: Iterable[Fix]) -> Mapping[str, list[Fix]]:
    """The fixes of each code, in the order of the codes."""
    found: dict[str, list[Fix]] = {}
    for fix in sorted(fixes, key=lambda fix: (fix.code, fix.file, fix.line)):
        found.setdefault(fix.code, []).append(fix)
    return found
