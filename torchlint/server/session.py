"""Judges open documents: the changed file is evaluated at once, with what the project last said about it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchlint.cache import digest
from torchlint.checker import Checker
from torchlint.custom_rules import load_rules
from torchlint.discovery import Discovery, Project, project_root
from torchlint.encoded import decode, encode
from torchlint.engine import check_module, to_diagnostics
from torchlint.fixing.apply import fix_source
from torchlint.planning import Planner
from torchlint.repair import Placed
from torchlint.semantics import Linked, Module, ProjectLayout
from torchlint.server.live import configs
from torchlint.source import SourceError, SourceFile

if TYPE_CHECKING:
    from torchlint.checker import Answer, Plan
    from torchlint.diagnostics import Diagnostic, FileReport
    from torchlint.server.documents import Document
    from torchlint.server.live import Answer as Facts

CONFIGURATION_FILES = ("torchlint.toml", "pyproject.toml")
_UNTITLED = "untitled.py"

# A loop as text: the function that holds it, and its first line.
LoopKeys = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Linted:
    """What is found in one state of a document. `parses` says whether all of it was Python."""

    document: Document
    report: FileReport
    parses: bool
    content: bytes


@dataclass
class _Told:
    """What a project said: its importable files, and about each open file the facts, the content that they were made
    with, and the loops of that content, which the facts know by number.
    """

    layout: ProjectLayout
    linked: dict[str, bytes] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    loops: dict[str, LoopKeys] = field(default_factory=dict)


class LiveChecker(Checker):
    """Checks one file whose project facts may be some keystrokes old: they number loops, and loops move.

    `loops` holds those of the last module; `parses` is False once a file was none.
    """

    told_loops: LoopKeys | None = None
    loops: LoopKeys = ()
    parses: bool = True

    def _read(self, path: str) -> SourceFile:
        return read_buffer(path, self._overlay[path])

    def _attach(self, module: Module, plan: Plan, linked: bytes | None) -> None:
        self.loops = loop_keys(module)
        if linked is not None and self.told_loops is not None and self.told_loops != self.loops:
            facts = decode(linked, Linked)
            moved = moved_loops(facts.step_loops, self.told_loops, self.loops)
            linked = encode(msgspec.structs.replace(facts, step_loops=moved))
        super()._attach(module, plan, linked)

    def _broken(self, plan: Plan, error: SourceError, source: SourceFile | None) -> Answer:
        self.parses = False
        return super()._broken(plan, error, source)

    def fix_one(self, plan: Plan, linked: bytes | None, wanted: Diagnostic) -> tuple[SourceFile, SourceFile, str]:
        """The file before and after the fix of one finding, which is verified as in `--fix`, and why it was not made.

        Raises SourceError where the file does not parse.
        """
        source = self._read(plan.path)

        def lint(text: SourceFile) -> list[Placed]:
            module = self._module(text, plan.relative)
            self._attach(module, plan, linked)
            found = check_module(module, plan.codes, self._registry).findings
            fixes = {id(f): f.fix for f in found if text is source and f.rule.code == wanted.code}
            return [
                Placed(
                    finding.rule.code,
                    text.span(finding.node)[0],
                    fixes.get(id(finding)) if _is_at(text, finding, wanted) else None,
                )
                for finding in found
            ]

        result = fix_source(source, lint, allow_unsafe=True)
        return source, result.source, "; ".join(failure.reason for failure in result.failures)


def read_buffer(path: str, raw: bytes) -> SourceFile:
    """An editor's text, which is UTF-8 whatever a coding comment says. Raises SourceError as reading a file does."""
    if path.endswith(".ipynb"):
        return SourceFile.from_bytes(Path(path), raw)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise SourceError("the text holds a lone surrogate") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise SourceError("the file holds a NUL byte", line)
    return SourceFile(Path(path), raw, text.removeprefix("\ufeff"), "utf-8", text.startswith("\ufeff"), None)


def _is_at(source: SourceFile, finding: object, wanted: Diagnostic) -> bool:
    (found,) = to_diagnostics(source, [finding], False)  # type: ignore[list-item]
    return (found.code, found.cell, found.location) == (wanted.code, wanted.cell, wanted.location)


def loop_keys(module: Module) -> LoopKeys:
    """What tells the loops of a file apart, in the order of their numbers."""
    return tuple((module.function_id(loop), module.source.line(loop.lineno).strip()) for loop in module.index.loops)


def moved_loops(numbers: frozenset[int], before: LoopKeys, after: LoopKeys) -> frozenset[int]:
    """The numbers that loops have in a changed file. A loop that is new has none: nobody knows yet what it is."""
    moved = set()
    for tag, first, last, new_first, new_last in SequenceMatcher(None, before, after, False).get_opcodes():
        if tag == "equal" or (tag == "replace" and last - first == new_last - new_first):
            moved |= {number - first + new_first for number in numbers if first <= number < last}
    return frozenset(moved)


class Session:
    """The open projects: their configuration, what they said, and how a document is judged with it."""

    def __init__(self) -> None:
        self.folders: tuple[str, ...] = ()
        self.configuration: str | None = None
        self.registry = load_rules()
        self._told: dict[str, _Told] = {}
        self._last_loops: dict[str, tuple[bytes, LoopKeys]] = {}
        self._stamps: dict[str, tuple[object, ...]] = {}
        self._plans: dict[str, tuple[tuple[object, ...], Plan | None, tuple[str, ...]]] = {}

    # Where a file belongs

    def root_of(self, path: str) -> tuple[str, bool]:
        """The root of a file's project, and whether it is a folder that was opened."""
        root, is_marked = project_root(path)
        inside = [folder for folder in self.folders if path.startswith(os.path.join(folder, ""))]
        if is_marked or not inside:
            return root, root in self.folders
        return max(inside, key=len), True

    def path_of(self, document: Document) -> str:
        """The path that a document is linted as: one without a file stands in the first folder."""
        return document.path or os.path.join(self.folders[0] if self.folders else os.getcwd(), _UNTITLED)

    def knows(self, root: str) -> bool:
        """Whether the project has said anything yet."""
        return root in self._told

    def tells(self, path: str) -> bool:
        """Whether the project of an open file knows of it."""
        told = self._told.get(self.root_of(path)[0])
        return told is not None and path in told.texts

    def forget(self) -> None:
        """Read the configuration again, whatever its files' times say."""
        self._plans.clear()

    def plan(self, path: str) -> tuple[Plan | None, tuple[str, ...]]:
        """How a file is linted (None: the configuration excludes it), and what is wrong with the configuration."""
        stamp = self._stamp(path)
        known = self._plans.get(path)
        if known is None or known[0] != stamp:
            known = self._plans[path] = (stamp, *self._make_plan(path))
        return known[1], known[2]

    def _make_plan(self, path: str) -> tuple[Plan | None, tuple[str, ...]]:
        root, _ = self.root_of(path)
        finder = configs(self.configuration, root)
        planner = Planner(finder, self.registry, "check", False)
        excluded = Discovery(finder, force_exclude=True).is_excluded(path)
        (plan,) = planner.plans(Project(root, (path,), (path,)))
        return None if excluded else plan, (*finder.problems, *planner.problems)

    def _stamp(self, path: str) -> tuple[object, ...]:
        """What changes when a configuration file near a path does: not every client watches files for us."""
        folders = [str(folder) for folder in Path(path).parents]
        files = [os.path.join(folder, name) for folder in folders for name in CONFIGURATION_FILES]
        files += [self.configuration] if self.configuration else []
        return self.configuration, self.folders, *(_modified(file) for file in files)

    # What the project says

    def take(self, facts: Facts) -> set[str]:
        """Note what a project says; the paths of open files about which it says something new."""
        before = self._told.get(facts.root)
        told = _Told(ProjectLayout(Path(facts.root), facts.files), dict(facts.linked), dict(facts.texts))
        for path, text in told.texts.items():
            last = self._last_loops.get(path)
            if last is not None and last[0] == text:
                told.loops[path] = last[1]
        self._told[facts.root] = told
        if before is None or before.layout.files != told.layout.files:
            return set(told.texts)
        return {path for path in told.texts if told.linked.get(path) != before.linked.get(path)}

    # Judging

    def lint(self, document: Document) -> Linted:
        """What is found in a document. A file that is excluded has no findings."""
        path, content = self.path_of(document), document.raw
        plan, _ = self.plan(path)
        if plan is None:
            from torchlint.diagnostics import FileReport

            return Linted(document, FileReport(path), False, content)
        checker, linked, told = self._checker(plan, content)
        report = checker.check(plan, linked).report
        state = digest(content)
        if checker.parses and checker.loops:
            self._last_loops[path] = state, checker.loops
            if told is not None and told.texts.get(path) == state:
                told.loops[path] = checker.loops
        return Linted(document, report, checker.parses, content)

    def fix_one(self, document: Document, finding: Diagnostic) -> tuple[SourceFile, SourceFile, str]:
        """The document before and after the fix of one finding, and why it was not made."""
        plan, _ = self.plan(self.path_of(document))
        assert plan is not None  # it has a finding
        checker, linked, _ = self._checker(plan, document.raw)
        return checker.fix_one(plan, linked, finding)

    def fix_all(self, document: Document) -> tuple[SourceFile, SourceFile] | None:
        """The document before and after all safe fixes; None where there are none, or none may be made."""
        plan, _ = self.plan(self.path_of(document))
        if plan is None or not plan.may_write:
            return None
        content = document.raw
        checker, linked, _ = self._checker(plan, content)
        report = checker.check(msgspec.structs.replace(plan, action="fix-source", unsafe=False), linked).report
        if report.fixed_source is None:
            return None
        return read_buffer(plan.path, content), read_buffer(plan.path, report.fixed_source)

    def source(self, document: Document) -> SourceFile:
        """The document as Python text."""
        return read_buffer(self.path_of(document), document.raw)

    def _checker(self, plan: Plan, content: bytes) -> tuple[LiveChecker, bytes | None, _Told | None]:
        root, _ = self.root_of(plan.path)
        told = self._told.get(root)
        layout = told.layout if told is not None else ProjectLayout(Path(root), (plan.relative,))
        checker = LiveChecker(layout, self.registry, frozenset((plan.path,)), {plan.path: content})
        if told is None or plan.path not in told.linked:
            return checker, None, told
        checker.told_loops = told.loops.get(plan.path)
        return checker, told.linked[plan.path], told


def _modified(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
