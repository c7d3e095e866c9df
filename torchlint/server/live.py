"""The facts of a project that is being edited: the process beside the server that keeps all its files in mind.

It answers one request after the other. What a request does not name as changed is neither read nor evaluated again, and
where the changed files say of themselves what they said before, nothing is linked again either.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.cache import Cache, Entry, Stored, cache_folder, digest
from torchlint.config import ConfigError, ConfigFinder, overrides_from
from torchlint.custom_rules import load_rules
from torchlint.discovery import Discovery, Project, project_root
from torchlint.planning import Planner
from torchlint.runner import File, Run

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from torchlint.checker import Plan
    from torchlint.crew import Alone, Crew
    from torchlint.diagnostics import FileReport
    from torchlint.engine import Registry

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Request:
    """What the server wants to know of one project.

    opened: the contents of open files by absolute path, which stand in for those on the disk. rescan: files may have
    come, gone or changed on the disk. check: lint every file of the project. configuration: the file that the user
    chose instead of those that are found. is_folder: the root was opened as a folder, so what lies below it belongs to
    it even where no marker says so.
    """

    root: str
    opened: Mapping[str, bytes]
    rescan: bool
    check: bool
    configuration: str | None
    is_folder: bool


@dataclass(frozen=True)
class Answer:
    """What the project says.

    files: the relative paths of its Python files. linked: the facts for each open file that has some, encoded, and
    texts: the digest of the content that they belong to. reports: on every file, where that was asked for.
    """

    root: str
    files: tuple[str, ...]
    linked: Mapping[str, bytes]
    texts: Mapping[str, bytes]
    reports: tuple[FileReport, ...] = ()
    problems: tuple[str, ...] = ()


class Cancel:
    """Sent while a request is worked on: stop, and answer with None."""


class _Cancelled(Exception):  # noqa: N818
    """The request that is worked on was cancelled."""


def configs(configuration: str | None, folder: str) -> ConfigFinder:
    """The configuration of an editor session; a chosen file that cannot be used counts as none, with a message."""
    overrides = overrides_from({}, Path(folder))
    try:
        return ConfigFinder(overrides, Path(configuration) if configuration else None)
    except ConfigError as error:
        finder = ConfigFinder(overrides)
        finder.problems.append(f"{error}; the configuration that is found is used instead")
        return finder


def serve(connection: Connection) -> None:
    """Answer requests until the connection ends. A tuple of two numbers says how far the work is."""
    # Ctrl-C in a terminal reaches the whole group; the server ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    projects: dict[str, LiveProject] = {}
    registry = load_rules()

    def progress(done: int, total: int) -> None:
        if connection.poll():
            if isinstance(connection.recv(), Cancel):
                raise _Cancelled
        elif done % 8 == 0 or done == total:
            connection.send((done, total))

    try:
        while True:
            request = connection.recv()
            if isinstance(request, Cancel):
                continue  # it came too late
            project = projects.setdefault(request.root, LiveProject(request.root, registry))
            try:
                connection.send(project.answer(request, progress))
            except _Cancelled:
                connection.send(None)
    except (EOFError, OSError):
        os._exit(0)


class LiveProject:
    """One project over many requests."""

    def __init__(self, root: str, registry: Registry) -> None:
        self._root = root
        self._registry = registry
        self._known = _Known(_MemoryCache(root))
        self._found: Project | None = None

    def answer(self, request: Request, progress: Progress = lambda done, total: None) -> Answer:
        """The project's facts with the open files as they are now."""
        finder = configs(request.configuration, self._root)
        discovery = Discovery(finder)
        if self._found is None or request.rescan:
            self._found = self._discover(discovery, request)
            self._known.contents.clear()
        files = tuple(sorted({*self._found.files, *request.opened}))
        project = Project(self._root, tuple(p for p in files if p in self._found.targets), files)
        planner = Planner(finder, self._registry, "check", False)
        plans: list[Plan] = list(planner.plans(project)) if request.check else []
        run = LiveRun(project, plans, self._registry, _jobs(), self._known.cache, request.opened, progress, self._known)
        reports = run.reports()
        relatives = tuple(r for r in map(project.relative, files) if r.endswith(".py"))
        linked = {path: self._known.linked[path] for path in request.opened if path in self._known.linked}
        texts = {path: digest(data) for path, data in request.opened.items()}
        problems = (*finder.problems, *discovery.problems, *planner.problems)
        return Answer(self._root, relatives, linked, texts, tuple(reports), problems)

    def _discover(self, discovery: Discovery, request: Request) -> Project:
        if request.is_folder or project_root(self._root)[1]:
            for project in discovery.projects([self._root]):
                return project
            return Project(self._root, (), ())
        return discovery.stdin_project(min(request.opened, default=os.path.join(self._root, "none.py")))


def _jobs() -> int:
    """Half of the processors: the other half belongs to what the user does."""
    return max((os.cpu_count() or 1) // 2, 1)


@dataclass
class _Known:
    """What is known from the requests before: contents by path, link steps by round, and the last facts."""

    cache: Cache
    contents: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    links: dict[int, tuple[bytes, dict[str, bytes], set[str]]] = field(default_factory=dict)
    linked: dict[str, bytes] = field(default_factory=dict)


class _MemoryCache(Cache):
    """A cache that begins with what the last run of the command line left, and is never written."""

    def __init__(self, root: str) -> None:
        super().__init__(cache_folder(root, None, project_root(root)[1]), root, writes=False)

    @property
    def is_on(self) -> bool:
        return True

    def save(self, project: bytes, entries: dict[str, Entry]) -> None:
        self._stored = Stored("", project, entries)


@dataclass
class LiveRun(Run):
    """A run that remembers, in `known`, what the next one need not do again."""

    known: _Known = field(default_factory=lambda: _Known(Cache(None, "")))

    def _files(self) -> dict[str, File]:
        files = {}
        for path in self.project.files:
            relative = self.project.relative(path)
            size, content = self._content(path)
            entry = self.cache.entry(relative, content) if content else None
            files[path] = File(path, relative, size, content, entry)
        return files

    def _content(self, path: str) -> tuple[int, bytes]:
        """The size and digest of a file's content; of one that cannot be read 0 and b""."""
        data = self.overlay.get(path)
        if data is not None:
            self.known.contents.pop(path, None)
            return len(data), digest(data)
        if path not in self.known.contents:
            self.known.contents[path] = (0, b"")
            with contextlib.suppress(OSError):
                data = Path(path).read_bytes()
                self.known.contents[path] = len(data), digest(data)
        return self.known.contents[path]

    def _summarize(
        self, crew: Alone | Crew, files: Mapping[str, File], linked: Mapping[str, bytes], number: int
    ) -> None:
        self._number = number
        super()._summarize(crew, files, linked, number)

    def _link(self, files: Mapping[str, File], *, last: bool) -> dict[str, bytes]:
        state = self._link_state(files)
        known = self.known.links.get(self._number)
        if known is None or known[0] != state:
            # plain bytes: the records themselves would stay in memory for as long as the server runs
            linked = {path: bytes(facts) for path, facts in super()._link(files, last=last).items()}
            known = self.known.links[self._number] = (state, linked, self._again)
        self._again = known[2]
        if last:
            self.known.linked = known[1]
        return known[1]

    def _link_state(self, files: Mapping[str, File]) -> bytes:
        """The digest of all that a link step is made from."""
        parts = []
        for path, file in files.items():
            said = file.entry.summaries if file.entry is not None and file.summary is not None else {}
            rounds = [n for n in range(self._number + 1) if n in said and (n < 2 or path in self._again)]
            parts.append(digest(b"\0".join(said[n][1] or b"" for n in rounds)))
            parts.append(digest(path.encode("utf-8", "surrogatepass")))
        return digest(b"".join(parts))
