"""The language server itself: what the client says, and what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from torchlint import __version__
from torchlint.engine import internal_error
from torchlint.server import convert
from torchlint.server.actions import KINDS, Abilities, Actions, NotApplied
from torchlint.server.documents import Documents, path_of
from torchlint.server.pages import hover
from torchlint.server.protocol import Protocol, Reader
from torchlint.server.scan import Scanner
from torchlint.server.session import Linted, Session
from torchlint.server.settings import ServerSettings, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torchlint.server.documents import Document

CHECK_WORKSPACE = "torchlint.checkWorkspace"
_STACK = 64 * 1024 * 1024  # deep code needs a deep stack, and threads have a small one on some systems
_PATIENCE = 2.0  # seconds that a file waits for the first facts about its project before it is judged alone
_LISTED = ("**/*.py", "**/*.ipynb", "**/pyproject.toml", "**/torchlint.toml", "**/.gitignore", "**/requirements*.txt")
_REPLACED = (
    *(types.TEXT_DOCUMENT_DID_OPEN, types.TEXT_DOCUMENT_DID_CHANGE, types.TEXT_DOCUMENT_DID_CLOSE),
    *(types.NOTEBOOK_DOCUMENT_DID_OPEN, types.NOTEBOOK_DOCUMENT_DID_CHANGE, types.NOTEBOOK_DOCUMENT_DID_CLOSE),
)
_log = logging.getLogger(__name__)


class Server(LanguageServer):
    """pygls' server. Errors go to the client's log: a window for each would hinder whoever types."""

    def report_server_error(self, error: Exception, source: Any) -> None:
        _log.warning("%s", error)


class App:
    """One running server."""

    def __init__(self) -> None:
        sync = types.NotebookDocumentSyncOptions(
            [types.NotebookDocumentFilterWithNotebook("*", [types.NotebookCellLanguage("python")])], save=True
        )
        self.server = Server(
            "torchlint", __version__, notebook_document_sync=sync, protocol_cls=Protocol, max_workers=2
        )
        self.documents = Documents()
        self.session = Session()
        self.settings = ServerSettings()
        self.scanner = Scanner(self)
        self.linted: dict[str, Linted] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._abilities = Abilities()
        self._markdown = False
        self._said: set[str] = set()
        threading.stack_size(_STACK)
        self._worker = ThreadPoolExecutor(1, "torchlint-lint")
        self._register()

    def _register(self) -> None:
        # pygls' own handlers of these keep the documents; ours do it instead.
        for method in _REPLACED:
            self.server.protocol.fm.builtin_features.pop(method)
        actions = types.CodeActionOptions(code_action_kinds=list(KINDS), resolve_provider=True)
        features: list[tuple[str, Callable[..., Any], Any]] = [
            (types.INITIALIZE, self._initialize, None),
            (types.INITIALIZED, self._initialized, None),
            (types.SHUTDOWN, self._shutdown, None),
            (types.TEXT_DOCUMENT_DID_OPEN, self._opened, None),
            (types.TEXT_DOCUMENT_DID_CHANGE, self._changed, None),
            (types.TEXT_DOCUMENT_DID_SAVE, self._saved, types.SaveOptions(include_text=False)),
            (types.TEXT_DOCUMENT_DID_CLOSE, self._closed, None),
            (types.NOTEBOOK_DOCUMENT_DID_OPEN, self._notebook_opened, None),
            (types.NOTEBOOK_DOCUMENT_DID_CHANGE, self._notebook_changed, None),
            (types.NOTEBOOK_DOCUMENT_DID_SAVE, self._notebook_saved, None),
            (types.NOTEBOOK_DOCUMENT_DID_CLOSE, self._notebook_closed, None),
            (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, self._files_changed, None),
            (types.WORKSPACE_DID_CHANGE_CONFIGURATION, self._settings_changed, None),
            (types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, self._folders_changed, None),
            (types.WINDOW_WORK_DONE_PROGRESS_CANCEL, lambda params: self.scanner.cancel(params.token), None),
            (types.TEXT_DOCUMENT_HOVER, self._hover, None),
            (types.TEXT_DOCUMENT_CODE_ACTION, self._code_actions, actions),
            (types.CODE_ACTION_RESOLVE, self._resolve, None),
        ]
        for method, handler, options in features:
            self.server.feature(method, options)(functools.partial(handler))
        self.server.command(CHECK_WORKSPACE)(functools.partial(self._check_workspace))

    # The life of the server

    def _initialize(self, params: types.InitializeParams) -> None:
        self.documents.encoding = str(self.server.workspace.position_encoding or types.PositionEncodingKind.Utf16)
        self._take_settings(params.initialization_options)
        self._take_folders()
        capabilities = params.capabilities
        actions = capabilities.text_document.code_action if capabilities.text_document else None
        resolve = actions.resolve_support if actions else None
        edits = capabilities.workspace.workspace_edit if capabilities.workspace else None
        self._abilities = Abilities(
            versions=bool(edits and edits.document_changes),
            resolves=bool(resolve and "edit" in resolve.properties and actions and actions.data_support),
            prefers=bool(actions and actions.is_preferred_support),
        )
        shows = capabilities.text_document.hover if capabilities.text_document else None
        self._markdown = types.MarkupKind.Markdown in ((shows and shows.content_format) or ())

    async def _initialized(self, params: types.InitializedParams) -> None:
        self._worker.submit(_warm_up)
        self.scanner.start()
        workspace = self.server.client_capabilities.workspace
        watching = workspace.did_change_watched_files if workspace else None
        if watching and watching.dynamic_registration:
            watchers = [types.FileSystemWatcher(pattern) for pattern in _LISTED]
            options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
            method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
            registration = types.Registration("torchlint-files", method, options)
            with contextlib.suppress(JsonRpcException):
                await self.server.client_register_capability_async(types.RegistrationParams([registration]))

    def _shutdown(self, params: None) -> None:
        self.close()

    def close(self) -> None:
        """End what runs beside the server."""
        for task in self._waiting.values():
            task.cancel()
        self.scanner.close()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def tell(self, messages: Iterable[str], kind: types.MessageType = types.MessageType.Warning) -> None:
        """Show each message to the user, once."""
        for message in messages:
            if message not in self._said:
                self._said.add(message)
                self.server.window_show_message(types.ShowMessageParams(kind, f"torchlint: {message}"))

    def log(self, messages: Iterable[str]) -> None:
        """Write each message to the client's log, once."""
        for message in messages:
            if message not in self._said:
                self._said.add(message)
                self.server.window_log_message(types.LogMessageParams(types.MessageType.Error, message))

    # Settings

    def _take_settings(self, options: Any) -> None:
        self.settings, problem = read_settings(options)
        self.session.configuration = self.settings.configuration
        if problem:
            self.tell([problem])

    def _take_folders(self) -> None:
        workspace = self.server.workspace
        uris = [folder.uri for folder in workspace.folders.values()] or [workspace.root_uri or ""]
        self.session.folders = tuple(path for uri in uris if (path := path_of(uri)))

    def _settings_changed(self, params: types.DidChangeConfigurationParams) -> None:
        if params.settings:
            self._take_settings(params.settings)
        self._configured()

    def _folders_changed(self, params: types.DidChangeWorkspaceFoldersParams) -> None:
        self._take_folders()
        self._configured()

    def _files_changed(self, params: types.DidChangeWatchedFilesParams) -> None:
        paths = [path_of(change.uri) for change in params.changes]
        if any(not path.endswith((".py", ".ipynb")) for path in paths):
            self._configured()
        for path in paths:
            self.scanner.want(path, rescan=True)

    def _configured(self) -> None:
        """The configuration may be another: judge everything anew."""
        self._said.clear()
        self.session.forget()
        self.scanner.start()
        for document in self.documents:
            self.judge(document)

    # Documents

    def _opened(self, params: types.DidOpenTextDocumentParams) -> None:
        self._note(self.documents.open_file(params.text_document))

    def _changed(self, params: types.DidChangeTextDocumentParams) -> None:
        self._note(self.documents.change_file(params), self.settings.debounce / 1000)

    def _saved(self, params: types.DidSaveTextDocumentParams) -> None:
        self._note(self.documents.get(params.text_document.uri))

    def _closed(self, params: types.DidCloseTextDocumentParams) -> None:
        if self.documents.close_file(params.text_document.uri):
            self._forget(params.text_document.uri, [params.text_document.uri])

    def _notebook_opened(self, params: types.DidOpenNotebookDocumentParams) -> None:
        self._note(self.documents.open_notebook(params))

    def _notebook_changed(self, params: types.DidChangeNotebookDocumentParams) -> None:
        changed = self.documents.change_notebook(params)
        if changed is not None:
            document, gone = changed
            for uri in gone:
                self.publish(uri, None, [])
            self._note(document, self.settings.debounce / 1000)

    def _notebook_saved(self, params: types.DidSaveNotebookDocumentParams) -> None:
        self._note(self.documents.get(params.notebook_document.uri))

    def _notebook_closed(self, params: types.DidCloseNotebookDocumentParams) -> None:
        self._forget(params.notebook_document.uri, self.documents.close_notebook(params.notebook_document.uri))

    def _note(self, document: Document | None, delay: float = 0.0) -> None:
        if document is not None:
            self.judge(document, delay)

    def _forget(self, uri: str, texts: Iterable[str]) -> None:
        task = self._waiting.pop(uri, None)
        if task is not None:
            task.cancel()
        self.linted.pop(uri, None)
        for text in texts:
            self.publish(text, None, [])
        self.scanner.closed(path_of(uri))

    # Judging

    def judge(self, document: Document, delay: float = 0.0) -> None:
        """Lint a document after a pause; what was to be done with an earlier state of it is not done any more."""
        known = self._waiting.get(document.uri)
        if known is not None:
            known.cancel()
        task = asyncio.get_running_loop().create_task(self._judge(document.uri, delay))
        self._waiting[document.uri] = task

    async def _judge(self, uri: str, delay: float) -> None:
        await asyncio.sleep(delay)
        document = self.documents.get(uri)
        if document is None:
            return
        try:
            await self._judge_now(document)
        except Exception as error:
            self.log([internal_error("the language server", document.path or uri, error)])

    async def _judge_now(self, document: Document) -> None:
        linted = await self._lint(document)
        if linted is not None and await self.scanner.first_facts(linted, _PATIENCE):
            linted = await self._lint(document)
        if linted is not None:
            self._show(linted)
            self.scanner.judged(linted)

    async def _lint(self, document: Document) -> Linted | None:
        """What is found in a document, None where it has changed meanwhile."""
        linted: Linted = await self.work(self.session.lint, document)
        now = self.documents.get(document.uri)
        if now is None or now.state != document.state:
            return None
        self.linted[document.uri] = linted
        return linted

    async def work(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the thread that does the work, so that messages are read meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, function, *arguments)

    def _show(self, linted: Linted) -> None:
        for uri, diagnostics in convert.by_part(linted).items():
            part = linted.document.part_at(uri)
            self.publish(uri, part.version if part else None, diagnostics)
        _, problems = self.session.plan(self.session.path_of(linted.document))
        self.tell(problems)
        self.log(linted.report.errors)

    def publish(self, uri: str, version: int | None, diagnostics: list[types.Diagnostic]) -> None:
        """Tell the client what is found in a text."""
        params = types.PublishDiagnosticsParams(uri, diagnostics, version)
        self.server.text_document_publish_diagnostics(params)

    # Questions

    async def _current(self, uri: str) -> Linted | None:
        """What is found in a document as it is now."""
        document = self.documents.get(uri)
        if document is None:
            return None
        known = self.linted.get(document.uri)
        if known is not None and known.document.state == document.state:
            return known
        return await self._lint(document)

    async def _hover(self, params: types.HoverParams) -> types.Hover | None:
        linted = await self._current(params.text_document.uri)
        part = linted.document.part_at(params.text_document.uri) if linted else None
        if part is None:
            return None
        return hover(part, params.position, linted, self.session.registry, self._markdown)

    async def _code_actions(self, params: types.CodeActionParams) -> list[types.CodeAction] | None:
        linted = await self._current(params.text_document.uri)
        part = linted.document.part_at(params.text_document.uri) if linted else None
        if linted is None or part is None:
            return None
        actions = Actions(self.session, self._abilities)
        offered: list[types.CodeAction] = await self.work(
            actions.offered, linted, part, params.range, params.context.only
        )
        return offered

    async def _resolve(self, action: types.CodeAction) -> types.CodeAction:
        data = action.data if isinstance(action.data, dict) else {}
        linted = await self._current(str(data.get("uri", "")))
        if linted is None:
            return action
        try:
            actions = Actions(self.session, self._abilities)
            resolved: types.CodeAction = await self.work(actions.resolved, action, linted.document, linted)
        except NotApplied as reason:
            text = f"torchlint: not done: {reason}"
            self.server.window_show_message(types.ShowMessageParams(types.MessageType.Warning, text))
            return action
        return resolved

    async def _check_workspace(self, *arguments: Any) -> None:
        await self.scanner.check_workspace()


def _warm_up() -> None:
    """Import what the first finding and the first fix need, and keep it out of the garbage collections to come."""
    import libcst.matchers  # noqa: F401

    import torchlint.fixing.edits
    import torchlint.repair  # noqa: F401

    gc.collect()
    gc.freeze()


def serve() -> int:
    """Serve on standard input and output until the client leaves."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="torchlint server: %(message)s")
    logging.getLogger("pygls").setLevel(logging.CRITICAL)
    # The protocol's streams move away from where a stray `print` or a child process would find them.
    messages, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    app = App()
    try:
        app.server.start_io(Reader(messages), answers)  # type: ignore[arg-type]
    finally:
        app.close()
    return 0
