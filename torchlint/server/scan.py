"""Keeps the facts of the open files' projects current, and checks whole projects on demand."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from torchlint.cache import digest
from torchlint.server import convert
from torchlint.server.background import Background
from torchlint.server.documents import uri_of
from torchlint.server.live import Request
from torchlint.server.positions import Text
from torchlint.source import SourceError, SourceFile

if TYPE_CHECKING:
    from torchlint.diagnostics import FileReport
    from torchlint.server.app import App
    from torchlint.server.live import Answer
    from torchlint.server.session import Linted


class Scanner:
    """Sends the process in the background what has changed, one project after the other, and spreads what it says."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._background = Background()
        self._wanted: dict[str, bool] = {}  # roots, and whether their files are to be looked for again
        self._parsed: dict[str, bytes] = {}  # the last text of each open file that was Python
        self._sent: dict[str, bytes] = {}  # the digests of those that the process knows
        self._roots: set[str] = set()  # all that were asked about
        self._heard: dict[str, asyncio.Event] = {}  # by path, set once the project knows of the file
        self._shown: dict[str, set[str]] = {}  # by root, the files that are not open and show findings
        self._task: asyncio.Task[None] | None = None
        self._asking = asyncio.Lock()
        self._tokens = itertools.count(1)
        self._token = ""

    def start(self) -> None:
        """Look at every folder of the workspace, again where it is known."""
        roots = {self._app.session.root_of(folder)[0] for folder in self._app.session.folders}
        for root in sorted(roots | self._roots):
            self._want(root, rescan=True)

    def want(self, path: str, rescan: bool = False) -> None:
        """Ask for new facts about the project of a path."""
        root, _ = self._app.session.root_of(path)
        if root in self._roots:
            self._want(root, rescan)

    def judged(self, linted: Linted) -> None:
        """Note a text that was linted: where it is Python, and new, the project may say something else now."""
        path = linted.document.path
        if path and linted.parses and self._sent.get(path) != digest(linted.content):
            self._parsed[path] = linted.content
            self._want(self._app.session.root_of(path)[0])

    def closed(self, path: str) -> None:
        """A file is not open any more: its text is what the disk holds."""
        if self._parsed.pop(path, None) is not None:
            self._sent.pop(path, None)
            self._want(self._app.session.root_of(path)[0], rescan=True)

    async def first_facts(self, linted: Linted, patience: float) -> bool:
        """Where the project knows nothing of a file yet, wait until it does, for some seconds at most; whether it was
        so.
        """
        path, session = linted.document.path, self._app.session
        if not path or not linted.parses or session.tells(path):
            return False
        self.judged(linted)
        heard = self._heard.setdefault(path, asyncio.Event())
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(heard.wait(), patience)
        return True

    async def check_workspace(self) -> None:
        """Check every file of every folder, and show what is found in those that are not open, too."""
        session = self._app.session
        for root in sorted({session.root_of(folder)[0] for folder in session.folders}):
            await self._ask(root, rescan=True, check=True, title="checking")

    def cancel(self, token: object) -> None:
        """Stop what a progress bar stands for."""
        if token == self._token:
            self._background.cancel()

    def close(self) -> None:
        """End everything."""
        if self._task is not None:
            self._task.cancel()
        self._background.close()

    def _want(self, root: str, rescan: bool = False) -> None:
        self._roots.add(root)
        self._wanted[root] = self._wanted.get(root, False) or rescan
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while self._wanted:
            root, rescan = self._wanted.popitem()
            check = self._app.settings.diagnostic_mode == "workspace"
            await self._ask(root, rescan, check, "reading" if rescan or not self._app.session.knows(root) else "")

    async def _ask(self, root: str, rescan: bool, check: bool, title: str) -> None:
        """One question about a project; with a `title` the client shows how far the answer is."""
        async with self._asking:
            session = self._app.session
            opened = {path: data for path, data in self._parsed.items() if session.root_of(path)[0] == root}
            request = Request(root, opened, rescan, check, session.configuration, root in session.folders)
            bar = await self._bar(f"torchlint: {title} {Path(root).name}") if title else None
            try:
                answer = await self._background.ask(request, bar.report if bar else lambda done, total: None)
            except asyncio.CancelledError:
                self._background.cancel()
                raise
            finally:
                if bar is not None:
                    bar.end()
                for path in opened:
                    self._heard.setdefault(path, asyncio.Event()).set()
            if answer is not None:
                self._sent |= answer.texts
                self._spread(answer, check)

    def _spread(self, answer: Answer, check: bool) -> None:
        app = self._app
        news = app.session.take(answer)
        for document in app.documents:
            if document.path in news:
                app.judge(document)
        if check:
            app.tell(answer.problems)
            self._show(answer.root, answer.reports)

    def _show(self, root: str, reports: tuple[FileReport, ...]) -> None:
        """Show the findings in files that are not open. A notebook's cells have a URI only while it is open."""
        opened = {document.path for document in self._app.documents}
        before, now = self._shown.get(root, set()), set()
        for report in reports:
            self._app.log(report.errors)
            if report.path in opened or not report.findings or report.path.endswith(".ipynb"):
                continue
            with contextlib.suppress(OSError, SourceError, ValueError):
                text = Text(SourceFile.read(Path(report.path)).text, self._app.documents.encoding)
                self._app.publish(uri_of(report.path), None, convert.diagnostics(report.findings, text))
                now.add(report.path)
        for path in before - now - opened:
            self._app.publish(uri_of(path), None, [])
        self._shown[root] = now

    async def _bar(self, title: str) -> _Bar | None:
        window = self._app.server.client_capabilities.window
        if not (window and window.work_done_progress):
            return None
        self._token = f"torchlint-{next(self._tokens)}"
        with contextlib.suppress(JsonRpcException):
            await self._app.server.work_done_progress.create_async(self._token)
            return _Bar(self._app, self._token, title)
        return None


class _Bar:
    """A progress bar of the client."""

    def __init__(self, app: App, token: str, title: str) -> None:
        self._progress = app.server.work_done_progress
        self._token = token
        self._percent = 0
        self._progress.begin(token, types.WorkDoneProgressBegin(title, cancellable=True, percentage=0))

    def report(self, done: int, total: int) -> None:
        """Show that `done` of `total` steps are done."""
        percent = min(100 * done // max(total, 1), 100)
        if percent > self._percent:
            self._percent = percent
            report = types.WorkDoneProgressReport(cancellable=True, percentage=percent)
            self._progress.report(self._token, report)

    def end(self) -> None:
        """Take the bar away."""
        self._progress.end(self._token, types.WorkDoneProgressEnd())
        self._progress.tokens.pop(self._token, None)
