"""Many files: summarize each, link the project, and again with what that says; then check those that are to be linted.

Round 0 asks each file what it defines, so that names resolve across files; round 1 what its functions do, with those
names known; round 2 the same of those functions that may say more, with what other files' functions take and return.
More rounds change next to nothing.

The result does not depend on how many processes do the work, nor on the order in which they finish.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchlint.cache import Cache, Entry, contents_digest, digest, plan_digest
from torchlint.checker import Answer, Checker, Plan, Summary
from torchlint.crew import Alone, Crew, Task
from torchlint.diagnostics import FileReport
from torchlint.encoded import decode, encode

if TYPE_CHECKING:
    from torchlint.discovery import Project
    from torchlint.engine import Registry
    from torchlint.semantics import FileSummary, ProjectLayout

ROUNDS = 3

# Work for half a second: less is not worth a further process.
BYTES_PER_PROCESS = 200_000

Progress = Callable[[int, int], None]


@dataclass
class File:
    """What a run knows of one of the project's files."""

    path: str
    relative: str
    size: int
    content: bytes = b""
    entry: Entry | None = None
    summary: FileSummary | None = None
    error: str = ""


@dataclass
class Run:
    """One project's run. `overlay` holds contents by absolute path that stand in for those on the disk."""

    project: Project
    plans: Sequence[Plan]
    registry: Registry
    jobs: int | None = None
    cache: Cache = field(default_factory=lambda: Cache(None, ""))
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    progress: Progress = lambda done, total: None

    def reports(self) -> list[FileReport]:
        """A report for each plan, in the plans' order."""
        with _without_collections():
            return self._reports()

    def _reports(self) -> list[FileReport]:
        files = self._files()
        state = contents_digest((file.relative, file.content) for file in files.values()) if self.cache.is_on else b""
        unchanged = bool(state) and state == self.cache.project
        if unchanged and (known := self._known_reports(files)) is not None:
            return known
        stale = [file for file in files.values() if file.entry is None]
        self._total, self._done = ROUNDS * len(files) + len(self.plans), 0
        crew = self._crew(files, stale)
        try:
            linked: dict[str, bytes] = {}
            self._again: set[str] = set()  # files whose functions may say more now
            for number in range(ROUNDS):
                self._summarize(crew, files, linked, number)
                linked = self._link(files, last=number == ROUNDS - 1)
            answers = self._check(crew, files, linked)
        finally:
            crew.close()
        self._remember(files, linked, answers, state)
        return [_with_error(answers[plan.path].report, files[plan.path].error) for plan in self.plans] + list(
            _errors_elsewhere(files, self.plans)
        )

    def _files(self) -> dict[str, File]:
        files = {}
        for path in self.project.files:
            file = File(path, self.project.relative(path), 0)
            try:
                if self.cache.is_on:
                    data = self.overlay.get(path)
                    data = Path(path).read_bytes() if data is None else data
                    file.size, file.content = len(data), digest(data)
                    file.entry = self.cache.entry(file.relative, file.content)
                else:
                    file.size = os.stat(path).st_size if path not in self.overlay else len(self.overlay[path])
            except OSError:
                pass
            files[path] = file
        return files

    def _known_reports(self, files: Mapping[str, File]) -> list[FileReport] | None:
        """All reports from the cache; None where one is missing."""
        reports = []
        for plan in self.plans:
            entry = files[plan.path].entry
            if entry is None or entry.report is None or entry.plan != plan_digest(plan):
                return None
            reports.append(entry.report)
        return reports

    def _layout(self, files: Mapping[str, File]) -> ProjectLayout:
        """The project's folder and its importable files."""
        from torchlint.semantics import ProjectLayout

        importable = tuple(file.relative for file in files.values() if file.relative.endswith(".py"))
        return ProjectLayout(Path(self.project.root), importable)

    def _crew(self, files: Mapping[str, File], stale: Sequence[File]) -> Alone | Crew:
        targets = frozenset(plan.path for plan in self.plans)
        checker = Checker(self._layout(files), self.registry, targets, self.overlay)
        work = {file.path: file.size for file in stale}
        work |= {plan.path: files[plan.path].size for plan in self.plans}
        jobs = self.jobs or min(_cpu_count(), sum(work.values()) // BYTES_PER_PROCESS)
        jobs = min(jobs, len(work))
        return Crew(checker, jobs, work) if jobs > 1 else Alone(checker)

    def _summarize(
        self, crew: Alone | Crew, files: Mapping[str, File], linked: Mapping[str, bytes], number: int
    ) -> None:
        """One round: each file's summary, made with what the link step said after the round before."""
        tasks = []
        keys = {}
        for file in files.values():
            facts = linked.get(file.path)
            if number and (facts is None or (number > 1 and file.path not in self._again)):
                continue
            keys[file.path] = digest(facts) if facts is not None else b""
            known = file.entry.summaries.get(number) if file.entry is not None else None
            if known is not None and known[0] == keys[file.path]:
                self._take(file, number, known[1])
            else:
                tasks.append(Task(file.path, (file.path, file.relative, number, facts)))
        self._done += len(files) - len(tasks)
        for result in crew.run("summarize", tasks):
            file = files[result.path]
            summary: Summary = result.value or Summary(None, result.error)
            file.error = file.error or summary.error
            file.entry = file.entry or Entry(file.content)
            kept = bytes(summary.encoded) if summary.encoded is not None else None
            file.entry.summaries[number] = (keys[file.path], kept)
            self._take(file, number, summary.encoded)
            self._step()

    @staticmethod
    def _take(file: File, number: int, encoded: bytes | None) -> None:
        """Note what a file says in a round: the third only revises what it said in the second."""
        from torchlint.semantics import FileSummary

        found = decode(encoded, FileSummary) if encoded is not None else None
        if number < 2:
            file.summary = found
        elif found is not None and file.summary is not None:
            file.summary = file.summary.revised(found)

    def _link(self, files: Mapping[str, File], *, last: bool) -> dict[str, bytes]:
        """What the project says about each file that has a summary, encoded, by path."""
        from torchlint.semantics import link

        summaries = {file.relative: file.summary for file in files.values() if file.summary is not None}
        linked = link(self._layout(files), summaries, last=last)
        self._again = {file.path for file in files.values() if file.relative in linked and linked[file.relative].again}
        return {file.path: encode(linked[file.relative]) for file in files.values() if file.relative in linked}

    def _check(self, crew: Alone | Crew, files: Mapping[str, File], linked: Mapping[str, bytes]) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        tasks = []
        for plan in self.plans:
            file = files[plan.path]
            entry = file.entry
            if entry and entry.report and (entry.linked, entry.plan) == (_facts(linked, plan), plan_digest(plan)):
                answers[plan.path] = Answer(entry.report, True)
            elif file.error.startswith(_DIED):
                answers[plan.path] = Answer(FileReport(plan.path), False)
            else:
                tasks.append(Task(plan.path, (plan, linked.get(plan.path))))
        for result in crew.run("check", tasks):
            answers[result.path] = result.value or Answer(FileReport(result.path, errors=(result.error,)), False)
            self._step()
        return answers

    def _remember(
        self, files: Mapping[str, File], linked: Mapping[str, bytes], answers: Mapping[str, Answer], state: bytes
    ) -> None:
        if not self.cache.is_on:
            return
        for plan in self.plans:
            answer, entry = answers[plan.path], files[plan.path].entry
            if entry is None:
                continue
            if answer.lasting and plan.action == "check":
                entry.linked, entry.plan, entry.report = _facts(linked, plan), plan_digest(plan), answer.report
            elif plan.action == "check":
                entry.report = None
        entries = {
            file.relative: file.entry
            for file in files.values()
            if file.entry is not None and file.content and not file.error
        }
        # a run in which something went wrong says so again next time
        self.cache.save(b"" if any(file.error for file in files.values()) else state, entries)

    def _step(self) -> None:
        self._done += 1
        self.progress(self._done, self._total)


_DIED = "internal error: a worker process died"


def _facts(linked: Mapping[str, bytes], plan: Plan) -> bytes:
    return digest(linked[plan.path]) if plan.path in linked else b""


def _with_error(report: FileReport, error: str) -> FileReport:
    if not error or error in report.errors:
        return report
    return msgspec.structs.replace(report, errors=(error, *report.errors))


def _errors_elsewhere(files: Mapping[str, File], plans: Sequence[Plan]) -> Iterator[FileReport]:
    """Reports on files that were not to be linted but went wrong: their facts are missing from the others' findings."""
    planned = {plan.path for plan in plans}
    for file in files.values():
        if file.error and file.path not in planned:
            yield FileReport(file.path, errors=(file.error,))


def _cpu_count() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _without_collections() -> Iterator[None]:
    """Garbage collections off: `Checker` asks for one now and then, and in between they would only cost time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            # All that was made meanwhile counts as old now: else the next collection would go through it at once.
            gc.freeze()
            gc.unfreeze()
            gc.enable()
