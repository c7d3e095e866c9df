"""The work of one process on the files of one project: summaries first, then, with what the link step says, reports."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchlint.config import Settings
from torchlint.diagnostics import Diagnostic, FileReport
from torchlint.encoded import decode, encode
from torchlint.engine import SYNTAX_ERROR, Registry, check_module, internal_error, syntax_diagnostic, to_diagnostics
from torchlint.rule import Safety
from torchlint.semantics import Linked, Module, ProjectLayout, relevant
from torchlint.source import SourceError, SourceFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchlint.engine import Checked
    from torchlint.rule import Finding

# Parsed modules wait in memory between the rounds up to this many bytes of source; the rest is parsed again.
KEPT_BYTES = 6_000_000
# What is done with a module is released by hand; a collection every so many bytes of source sees to what was missed.
COLLECT_BYTES = 50_000_000

RECURSION_LIMIT = 5_000


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """What is to be done with one file of a project.

    `path` is absolute, `relative` is posix and starts at the project's root. `action` is "check", "fix" (repair and
    write), "diff" (repair and show) or "fix-source" (repair and hand back); `unsafe` admits unsafe fixes. With
    `build_edits`, findings carry the edits of their fixes. `fail_on` is the least level that fails the run;
    `may_write` is False where the settings in force are not those that somebody configured. `shown` is the path in
    a diff; `stamp` stands for the code of the custom rules among `codes`.
    """

    path: str
    relative: str
    codes: frozenset[str]
    settings: Settings
    target_torch: tuple[int, int]
    action: str = "check"
    unsafe: bool = False
    build_edits: bool = False
    fail_on: str = "warning"
    may_write: bool = True
    shown: str = ""
    stamp: str = ""


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """What a file tells the others, encoded; None where it has nothing to tell. `error` is a message, or ""."""

    encoded: bytes | None
    error: str = ""


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The report on a file; `lasting` says that the same inputs will give the same report another day."""

    report: FileReport
    lasting: bool


class Checker:
    """Checks files of one project. `overlay` holds contents that stand in for those on the disk (standard input)."""

    def __init__(
        self,
        layout: ProjectLayout,
        registry: Registry,
        targets: frozenset[str],
        overlay: Mapping[str, bytes] | None = None,
    ) -> None:
        # a branch of a long `elif` chain lies as deep as the chain is long
        sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))
        self._layout = layout
        self._registry = registry
        self._targets = targets
        self._overlay = overlay or {}
        self._kept: dict[str, Module] = {}
        self._kept_bytes = 0
        self._uncollected = 0

    def summarize(self, path: str, relative: str, number: int, linked: bytes | None) -> Summary:
        """A round of phase 1: what the file defines (0), what its functions do with what the project says about it
        (1), and what of that is different once the project says more (2).

        A file that cannot be read or parsed has nothing to tell; `check` says so where it is linted.
        """
        module = self._kept.get(path)
        try:
            if module is None:
                source = self._read(path)
                if not relevant(relative, source.raw):
                    return Summary(None)
                module = self._module(source, relative)
            if linked is None:
                return Summary(encode(module.declarations()))
            module.attach(decode(linked, Linked))
            return Summary(encode(module.summary() if number == 1 else module.revision()))
        except (OSError, SourceError, UnicodeEncodeError):
            return Summary(None)  # a file whose name is no text cannot be imported by one either
        except Exception as error:
            return Summary(None, internal_error("semantics", path, error))
        finally:
            if module is not None and path not in self._kept:
                self._keep(path, module)

    def _keep(self, path: str, module: Module) -> None:
        """Hold a parsed module for the next round, within the bound; let go of it beyond."""
        size = len(module.source.raw)
        if self._kept_bytes + size <= KEPT_BYTES:
            self._kept[path] = module
            self._kept_bytes += size
        else:
            module.release()
        self._collect(size)

    def check(self, plan: Plan, linked: bytes | None) -> Answer:
        """Phase 2. `linked` encodes what the project says about the file, None where it has no part in the project."""
        try:
            module = self._kept.pop(plan.path, None)
            if module is not None:
                self._kept_bytes -= len(module.source.raw)
                return self._finish(module, plan, linked)
            source = self._read(plan.path)
            return self._check_source(source, plan, linked)
        except SourceError as error:
            return self._broken(plan, error, None)
        except OSError as error:
            reason = f"{plan.path}: cannot be read: {error.strerror or error}"
            return Answer(FileReport(plan.path, unreadable=reason), False)
        except Exception as error:
            return Answer(FileReport(plan.path, errors=(internal_error("semantics", plan.path, error),)), False)

    def _check_source(self, source: SourceFile, plan: Plan, linked: bytes | None) -> Answer:
        try:
            if not relevant(plan.relative, source.raw) and b"torchlint" not in source.raw:
                source.parse()
                return self._finish_silent(source, plan)
            module = self._module(source, plan.relative)
        except SourceError as error:
            return self._broken(plan, error, source)
        return self._finish(module, plan, linked)

    def _read(self, path: str) -> SourceFile:
        data = self._overlay.get(path)
        return SourceFile.read(Path(path)) if data is None else SourceFile.from_bytes(Path(path), data)

    def _module(self, source: SourceFile, relative: str) -> Module:
        # A summary is text: a name that is none (bytes outside UTF-8) stands in it escaped, and no import means it.
        return Module(source, source.parse(), self._layout, relative.encode("utf-8", "backslashreplace").decode())

    def _attach(self, module: Module, plan: Plan, linked: bytes | None) -> None:
        module.attach(Linked() if linked is None else decode(linked, Linked))
        module.settings = plan.settings
        module.target_torch = plan.target_torch

    def _finish_silent(self, source: SourceFile, plan: Plan) -> Answer:
        """The report on a file that cannot hold a finding but for cells that do not parse."""
        return Answer(FileReport(plan.path, tuple(self._cell_errors(source, plan))), True)

    def _finish(self, module: Module, plan: Plan, linked: bytes | None) -> Answer:
        self._attach(module, plan, linked)
        checked = check_module(module, plan.codes, self._registry)
        report = FileReport(plan.path, self._diagnostics(module.source, checked, plan), checked.errors)
        if plan.action != "check" and any(_is_allowed(finding, plan) for finding in checked.findings):
            report = self._repair(module, checked, plan, linked, report)
        self._collect(len(module.source.raw))
        module.release()
        return Answer(report, not checked.errors and not checked.expires)

    def _diagnostics(self, source: SourceFile, checked: Checked, plan: Plan) -> tuple[Diagnostic, ...]:
        findings = to_diagnostics(source, checked.findings, plan.build_edits) + self._cell_errors(source, plan)
        return tuple(sorted(findings, key=lambda finding: finding.order))

    def _repair(
        self, module: Module, checked: Checked, plan: Plan, linked: bytes | None, report: FileReport
    ) -> FileReport:
        """The report after the file's fixes: what is left is what the rules find in the repaired text."""
        from torchlint import repair

        def lint(source: SourceFile) -> Checked:
            if source is module.source:
                return checked
            fresh = self._module(source, plan.relative)
            self._attach(fresh, plan, linked)
            return check_module(fresh, plan.codes, self._registry)

        repaired = repair.repair(module.source, lint, plan.unsafe)
        report = msgspec.structs.replace(report, warnings=repaired.warnings)
        if repaired.source is module.source:
            return report
        left = self._diagnostics(repaired.source, lint(repaired.source), plan)
        return repair.deliver(repaired, plan, report, left)

    def _cell_errors(self, source: SourceFile, plan: Plan) -> list[Diagnostic]:
        if SYNTAX_ERROR not in plan.codes:
            return []
        return [syntax_diagnostic(self._registry[SYNTAX_ERROR], error, source) for error in source.cell_errors]

    def _broken(self, plan: Plan, error: SourceError, source: SourceFile | None) -> Answer:
        if SYNTAX_ERROR not in plan.codes:
            return Answer(FileReport(plan.path), True)
        finding = syntax_diagnostic(self._registry[SYNTAX_ERROR], error, source)
        return Answer(FileReport(plan.path, (finding,)), True)

    def _collect(self, size: int) -> None:
        self._uncollected += size
        if self._uncollected > COLLECT_BYTES:
            self._uncollected = 0
            gc.collect()


def _is_allowed(finding: Finding, plan: Plan) -> bool:
    return finding.fix is not None and (plan.unsafe or finding.fix.safety is Safety.SAFE)
