"""The language server, driven by a client of the protocol in a process of its own."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

from torchlint.server.documents import path_of, uri_of

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 20.0  # seconds: for a loaded machine; what is waited for mostly comes in a tenth of one
TRAIN = """\
import torch


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad(set_to_none=False)
    device = torch.device("cuda")
    x = torch.zeros(3).to(device)
    return x
"""


@pytest_lsp.fixture(config=ClientServerConfig(server_command=[sys.executable, "-m", "torchlint", "server"]))
async def client(lsp_client: LanguageClient):  # type: ignore[no-untyped-def]
    yield
    await asyncio.wait_for(lsp_client.shutdown_session(), PATIENCE)


class Editor:
    """What an editor does, in few words."""

    def __init__(self, client: LanguageClient, root: Path) -> None:
        self.client = client
        self.root = root
        self.versions: dict[str, int] = {}
        self.seen: list[types.PublishDiagnosticsParams] = []
        self.registered: list[str] = []
        client.protocol.fm.features.pop(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS, None)
        client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self.seen.append(params))
        client.feature(types.CLIENT_REGISTER_CAPABILITY)(self._register)

    @property
    def _register(self) -> Any:
        return lambda params: self.registered.extend(registration.method for registration in params.registrations)

    async def start(
        self, capabilities: types.ClientCapabilities | None = None, **options: Any
    ) -> types.InitializeResult:
        folders = options.pop("folders", [self.root])
        params = types.InitializeParams(
            capabilities=capabilities or client_capabilities("visual-studio-code"),
            workspace_folders=[types.WorkspaceFolder(uri_of(str(folder)), folder.name) for folder in folders],
            root_uri=uri_of(str(self.root)),
            initialization_options=options,
        )
        return await self.client.initialize_session(params)

    def open(self, name: str, text: str = TRAIN, language: str = "python") -> str:
        uri = uri_of(str(self.root / name))
        self.versions[uri] = 1
        item = types.TextDocumentItem(uri, language, 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def change(self, uri: str, *changes: Any, version: int | None = None) -> int:
        self.versions[uri] = number = version if version is not None else self.versions[uri] + 1
        identifier = types.VersionedTextDocumentIdentifier(uri=uri, version=number)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, list(changes)))
        return number

    def replace(self, uri: str, text: str) -> int:
        return self.change(uri, types.TextDocumentContentChangeWholeDocument(text))

    async def diagnostics(self, uri: str, version: int | None = 1, count: int | None = None) -> list[types.Diagnostic]:
        """The last diagnostics for a text, once there are some for a version (and as many as wanted)."""

        def found() -> list[types.Diagnostic] | None:
            for params in reversed(self.seen):
                if params.uri == uri and params.version == version:
                    matching = list(params.diagnostics)
                    return matching if count is None or len(matching) == count else None
            return None

        await self.until(lambda: found() is not None, f"diagnostics for {uri} {version}")
        return found() or []

    async def until(self, happened: Any, what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < end, f"waited in vain for {what}; seen: {self.seen}"
            await asyncio.sleep(0.005)

    async def actions(self, uri: str, line: int, only: list[str] | None = None) -> list[types.CodeAction]:
        where = types.Range(types.Position(line, 0), types.Position(line, 0))
        context = types.CodeActionContext([], only=only)
        params = types.CodeActionParams(types.TextDocumentIdentifier(uri), where, context)
        found = await self.client.text_document_code_action_async(params)
        assert all(isinstance(action, types.CodeAction) for action in found or ())
        return list(found or ())  # type: ignore[arg-type]

    async def hover(self, uri: str, line: int, character: int) -> types.Hover | None:
        params = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, character))
        return await self.client.text_document_hover_async(params)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


@pytest.fixture
def editor(client: LanguageClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Editor:
    (tmp_path / ".git").mkdir()
    return Editor(client, tmp_path)


def codes(diagnostics: list[types.Diagnostic]) -> list[str]:
    return sorted(str(diagnostic.code) for diagnostic in diagnostics)


def applied(text: str, edits: Any) -> str:
    """A text after edits in UTF-16 units, of lines that hold ASCII alone."""
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]

    def offset(place: types.Position) -> int:
        return starts[place.line] + place.character

    for edit in sorted(edits, key=lambda edit: (edit.range.start.line, edit.range.start.character), reverse=True):
        text = text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]
    return text


def edits_of(action: types.CodeAction, uri: str) -> list[Any]:
    assert action.edit is not None
    if action.edit.document_changes:
        return [e for change in action.edit.document_changes if change.text_document.uri == uri for e in change.edits]  # type: ignore[union-attr]
    return list((action.edit.changes or {}).get(uri, ()))


SIMPLE = types.ClientCapabilities()
pytestmark = pytest.mark.asyncio


# Diagnostics


async def test_findings_are_shown_for_unsaved_text_and_change_with_it(editor: Editor) -> None:
    await editor.start()
    uri = editor.open("train.py")
    found = await editor.diagnostics(uri)
    assert codes(found) == ["TL201", "TL405"]
    move = next(diagnostic for diagnostic in found if diagnostic.code == "TL201")
    assert move.source == "torchlint"
    assert move.range.start == types.Position(7, 8)
    assert move.severity == types.DiagnosticSeverity.Warning
    assert move.code_description is not None
    assert move.code_description.href.endswith("/tl201/")
    line = types.Range(types.Position(7, 0), types.Position(8, 0))
    version = editor.change(
        uri, types.TextDocumentContentChangePartial(line, "    x = torch.zeros(3, device=device)\n")
    )
    assert codes(await editor.diagnostics(uri, version)) == ["TL405"]


async def test_saving_judges_the_text_again(editor: Editor) -> None:
    await editor.start()
    uri = editor.open("train.py")
    await editor.diagnostics(uri)
    editor.seen.clear()
    editor.client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri)))
    assert codes(await editor.diagnostics(uri)) == ["TL201", "TL405"]


async def test_findings_of_a_closed_file_go_away(editor: Editor) -> None:
    await editor.start()
    uri = editor.open("train.py")
    await editor.diagnostics(uri)
    editor.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
    assert await editor.diagnostics(uri, None) == []


async def test_keystrokes_in_quick_succession_are_judged_once(editor: Editor) -> None:
    await editor.start(debounce=300)
    uri = editor.open("train.py")
    await editor.diagnostics(uri)
    await asyncio.sleep(0.5)
    editor.seen.clear()
    for number in range(10):
        last = editor.replace(uri, TRAIN + f"# {number}\n")
    await editor.diagnostics(uri, last)
    assert {params.version for params in editor.seen if params.uri == uri} == {last}


async def test_a_half_typed_file_shows_where_it_breaks_and_recovers(editor: Editor) -> None:
    await editor.start()
    uri = editor.open("train.py")
    await editor.diagnostics(uri)
    broken = await editor.diagnostics(uri, editor.replace(uri, TRAIN + "def f(\n"))
    assert codes(broken) == ["TL000"]
    assert broken[0].severity == types.DiagnosticSeverity.Error
    assert codes(await editor.diagnostics(uri, editor.replace(uri, TRAIN))) == ["TL201", "TL405"]


async def test_versions_out_of_order_change_nothing(editor: Editor) -> None:
    await editor.start()
    uri = editor.open("train.py")
    await editor.diagnostics(uri)
    editor.change(uri, types.TextDocumentContentChangeWholeDocument(TRAIN + "# five\n"), version=5)
    editor.change(uri, types.TextDocumentContentChangeWholeDocument("import os\n"), version=4)
    editor.change(uri, types.TextDocumentContentChangeWholeDocument("import os\n"), version=5)
    assert codes(await editor.diagnostics(uri, 5)) == ["TL201", "TL405"]
    end = types.Range(types.Position(9, 0), types.Position(9, 6))
    version = editor.change(uri, types.TextDocumentContentChangePartial(end, "def f("), version=6)
    assert codes(await editor.diagnostics(uri, version)) == ["TL000"]


async def test_untitled_and_unknown_documents(editor: Editor) -> None:
    await editor.start()
    item = types.TextDocumentItem("untitled:Untitled-1", "python", 1, TRAIN)
    editor.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    assert codes(await editor.diagnostics("untitled:Untitled-1")) == ["TL201", "TL405"]
    stranger = uri_of(str(editor.root / "never_opened.py"))
    editor.versions[stranger] = 1
    editor.replace(stranger, "x = (")
    assert await editor.hover(stranger, 0, 0) is None
    assert await editor.actions(stranger, 0) == []


async def test_paths_with_odd_characters(editor: Editor) -> None:
    await editor.start()
    name = "a b'\"[red]::error::%20é;x#?.py"
    uri = editor.open(name)
    assert codes(await editor.diagnostics(uri)) == ["TL201", "TL405"]
    assert path_of(uri) == str(editor.root / name)


# Positions


@pytest.mark.parametrize(
    ("encodings", "chosen", "column"),
    [
        (None, "utf-16", 8 + 2),
        ([types.PositionEncodingKind.Utf8, types.PositionEncodingKind.Utf16], "utf-8", 8 + 4),
        ([types.PositionEncodingKind.Utf32], "utf-32", 8 + 1),
    ],
)
async def test_positions_count_the_units_that_were_agreed_on(
    editor: Editor, encodings: Any, chosen: str, column: int
) -> None:
    general = types.GeneralClientCapabilities(position_encodings=encodings)
    result = await editor.start(types.ClientCapabilities(general=general))
    assert result.capabilities.position_encoding == chosen
    text = TRAIN.replace("    x = torch", '    "😋"; torch')
    uri = editor.open("train.py", text)
    (move,) = [found for found in await editor.diagnostics(uri) if found.code == "TL201"]
    assert move.range.start == types.Position(7, column)
    # The same units say where the client changes the text: this takes the move away.
    end = move.range.end
    drop = types.Range(types.Position(7, end.character - len(".to(device)")), end)
    version = editor.change(uri, types.TextDocumentContentChangePartial(drop, ""))
    assert codes(await editor.diagnostics(uri, version)) == ["TL405"]


async def test_lines_end_where_the_protocol_says(editor: Editor) -> None:
    await editor.start()
    text = "# \x0c \u2028 \x85\r\n" + TRAIN
    uri = editor.open("train.py", text)
    (move,) = [found for found in await editor.diagnostics(uri) if found.code == "TL201"]
    assert move.range.start.line == 8
    line = types.Range(types.Position(8, 0), types.Position(9, 0))
    version = editor.change(uri, types.TextDocumentContentChangePartial(line, "    x = 3\n"))
    assert codes(await editor.diagnostics(uri, version)) == ["TL405"]


# Actions


async def test_a_quick_fix_repairs_one_finding(editor: Editor) -> None:
    await editor.start(SIMPLE)
    uri = editor.open("train.py")
    await editor.diagnostics(uri)
    actions = await editor.actions(uri, 7)
    assert [action.kind for action in actions] == ["quickfix", "quickfix", "source.fixAll.torchlint"]
    assert actions[0].diagnostics is not None
    assert actions[0].diagnostics[0].code == "TL201"
    fixed = applied(TRAIN, edits_of(actions[0], uri))
    assert fixed == TRAIN.replace("torch.zeros(3).to(device)", "torch.zeros(3, device=device)")


async def test_unsafe_fixes_are_offered_apart_and_named(editor: Editor) -> None:
    await editor.start(SIMPLE)
    uri = editor.open("train.py")
    await editor.diagnostics(uri)
    unsafe = (await editor.actions(uri, 5))[0]
    assert unsafe.title.startswith("unsafe: ")
    assert "(" in unsafe.title
    assert "set_to_none" not in applied(TRAIN, edits_of(unsafe, uri))
    assert unsafe.is_preferred is None


async def test_fix_all_makes_the_safe_fixes_only(editor: Editor) -> None:
    await editor.start(SIMPLE)
    uri = editor.open("train.py")
    await editor.diagnostics(uri)
    for only in (["source.fixAll"], ["source.fixAll.torchlint"], ["source"]):
        (action,) = await editor.actions(uri, 0, only)
        assert action.kind == "source.fixAll.torchlint"
        fixed = applied(TRAIN, edits_of(action, uri))
        assert "torch.zeros(3, device=device)" in fixed
        assert "set_to_none=False" in fixed
    assert await editor.actions(uri, 7, ["refactor"]) == []


async def test_ignoring_a_finding_writes_a_comment_that_silences_it(editor: Editor) -> None:
    await editor.start(SIMPLE)
    uri = editor.open("train.py")
    await editor.diagnostics(uri)
    (ignore,) = [action for action in await editor.actions(uri, 5) if action.title == "ignore TL405 on this line"]
    silenced = applied(TRAIN, edits_of(ignore, uri))
    assert "set_to_none=False)  # torchlint: ignore[TL405]\n" in silenced
    assert codes(await editor.diagnostics(uri, editor.replace(uri, silenced))) == ["TL201"]


async def test_a_client_that_resolves_asks_for_the_edit_later(editor: Editor) -> None:
    await editor.start()  # VS Code's capabilities
    uri = editor.open("train.py")
    await editor.diagnostics(uri)
    actions = await editor.actions(uri, 7)
    assert all(action.edit is None for action in actions)
    assert actions[0].is_preferred
    resolved = [await editor.client.code_action_resolve_async(action) for action in actions]
    assert "torch.zeros(3, device=device)" in applied(TRAIN, edits_of(resolved[0], uri))
    changes = resolved[0].edit.document_changes if resolved[0].edit else None
    assert changes is not None
    assert changes[0].text_document.version == 1  # type: ignore[union-attr]
    # An action for a text that is gone must not be carried out on another one.
    stale = await editor.actions(uri, 7)
    editor.replace(uri, "\n" + TRAIN)
    late = await editor.client.code_action_resolve_async(stale[0])
    assert late.edit is None
    await editor.until(lambda: editor.client.messages, "the reason")
    assert "changed" in editor.client.messages[-1].message


# Hovers


async def test_hovering_a_finding_shows_the_page_of_its_rule(editor: Editor) -> None:
    await editor.start()
    uri = editor.open("train.py")
    await editor.diagnostics(uri)
    shown = await editor.hover(uri, 7, 10)
    assert shown is not None
    assert isinstance(shown.contents, types.MarkupContent)
    assert shown.contents.kind == types.MarkupKind.Markdown
    assert "TL201 create-then-move" in shown.contents.value
    assert "## Why it costs" in shown.contents.value or "Why it costs" in shown.contents.value
    assert await editor.hover(uri, 0, 1) is None


async def test_hovering_a_code_in_a_suppression_shows_its_page(editor: Editor) -> None:
    await editor.start(SIMPLE)
    text = "import torch\nx = 1  # torchlint: ignore[TL101, cat-in-loop]  # noqa: TL4\ny = 'TL101'\n"
    uri = editor.open("a.py", text)
    await editor.diagnostics(uri)
    line = text.split("\n")[1]
    for word, wanted in (("TL101", "TL101 sync-in-loop"), ("cat-in-loop", "TL203"), ("TL4", "TL405")):
        shown = await editor.hover(uri, 1, line.index(word) + 1)
        assert shown is not None
        assert isinstance(shown.contents, types.MarkupContent)
        assert shown.contents.kind == types.MarkupKind.PlainText
        assert wanted in shown.contents.value
    assert await editor.hover(uri, 2, 7) is None


# Configuration


async def test_configuration_counts_live_and_per_folder(editor: Editor) -> None:
    first, second = editor.root / "first", editor.root / "second"
    for folder in (first, second):
        (folder / ".git").mkdir(parents=True)
    editor.write("second/torchlint.toml", 'ignore = ["TL405"]\n')
    await editor.start(folders=[first, second])
    one, two = editor.open("first/train.py"), editor.open("second/train.py")
    assert codes(await editor.diagnostics(one)) == ["TL201", "TL405"]
    assert codes(await editor.diagnostics(two)) == ["TL201"]
    await editor.until(lambda: types.WORKSPACE_DID_CHANGE_WATCHED_FILES in editor.registered, "watched files")
    editor.seen.clear()
    path = editor.write("first/pyproject.toml", '[tool.torchlint]\nselect = ["TL405"]\n')
    change = types.FileEvent(uri_of(str(path)), types.FileChangeType.Created)
    editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([change]))
    assert codes(await editor.diagnostics(one, count=1)) == ["TL405"]
    assert codes(await editor.diagnostics(two)) == ["TL201"]


async def test_configuration_counts_with_the_next_keystroke_where_nobody_watches_files(editor: Editor) -> None:
    await editor.start(SIMPLE)
    uri = editor.open("train.py")
    await editor.diagnostics(uri)
    editor.write("pyproject.toml", '[tool.torchlint]\nextend-exclude = ["train.py"]\n')
    assert codes(await editor.diagnostics(uri, editor.replace(uri, TRAIN))) == []
    editor.write("pyproject.toml", '[tool.torchlint]\nignore = ["TL201"]\n')
    assert codes(await editor.diagnostics(uri, editor.replace(uri, TRAIN))) == ["TL405"]


async def test_a_broken_configuration_is_reported_and_the_defaults_stand_in(editor: Editor) -> None:
    editor.write("pyproject.toml", '[tool.torchlint]\nselct = ["TL405"]\n')
    await editor.start(SIMPLE)
    uri = editor.open("train.py")
    assert codes(await editor.diagnostics(uri)) == ["TL201", "TL405"]
    await editor.until(lambda: editor.client.messages, "a message")
    assert "did you mean 'select'?" in editor.client.messages[0].message
    assert await editor.actions(uri, 0, ["source.fixAll"]) == []


async def test_settings_of_the_client(editor: Editor) -> None:
    chosen = editor.write("other.toml", 'select = ["TL201"]\n')
    await editor.start(SIMPLE, configuration=str(chosen), debonce=3)
    uri = editor.open("train.py")
    assert codes(await editor.diagnostics(uri)) == ["TL201"]
    await editor.until(lambda: editor.client.messages, "a message")
    assert "did you mean 'debounce'?" in editor.client.messages[0].message
    editor.seen.clear()
    settings = {"torchlint": {"debounce": 10}}
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings))
    assert codes(await editor.diagnostics(uri, count=2)) == ["TL201", "TL405"]


# The project

EVALUATE = """\
import torch


def evaluate(model, loader):
    model.eval()
    total = 0.0
    for images in loader:
        output = model(images)
        total += output.mean().item()
    return total
"""
CALLER = """\
import torch
from lib import evaluate


def run(model, loader):
    with torch.no_grad():
        return evaluate(model, loader)
"""


async def test_facts_of_other_files_count_saved_or_not(editor: Editor) -> None:
    editor.write("lib.py", EVALUATE)
    editor.write("run.py", CALLER)
    await editor.start()
    lib = editor.open("lib.py", EVALUATE)
    guarded = codes(await editor.diagnostics(lib))
    assert "TL401" not in guarded
    run = editor.open("run.py", CALLER)
    await editor.diagnostics(run)
    editor.seen.clear()
    # Without the guard in the other, unsaved file the evaluation records gradients; with it again it does not.
    editor.replace(run, CALLER.replace("with torch.no_grad():", "if True:"))
    await editor.until(lambda: any("TL401" in codes(list(p.diagnostics)) for p in editor.seen if p.uri == lib), "TL401")
    editor.seen.clear()
    editor.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(run)))
    await editor.until(
        lambda: any(codes(list(p.diagnostics)) == guarded for p in editor.seen if p.uri == lib), "no TL401"
    )


async def test_a_loop_that_moves_keeps_what_is_known_of_it(editor: Editor) -> None:
    helper = "def step(model, batch):\n    loss = model(batch).sum()\n    loss.backward()\n    return loss\n"
    main = (
        "import torch\nfrom helper import step\n\n\ndef train(model, loader):\n    total = 0.0\n"
        "    for batch in loader:\n        total += step(model, batch.cuda()).item()\n    return total\n"
    )
    editor.write("helper.py", "import torch\n\n\n" + helper)
    await editor.start(debounce=0)
    uri = editor.open("main.py", main)
    assert codes(await editor.diagnostics(uri)) == ["TL101"]
    await asyncio.sleep(0.5)
    earlier = "import torch\n\n\ndef names(rows):\n    for row in rows:\n        print(row)\n\n\n"
    version = editor.replace(uri, main.replace("import torch\n", earlier, 1))
    first = await editor.diagnostics(uri, version)
    assert codes(first) == ["TL101"]
    shown = [codes(list(params.diagnostics)) for params in editor.seen if params.version == version]
    assert set(map(tuple, shown)) == {("TL101",)}


async def test_checking_the_workspace_shows_progress_and_files_that_are_not_open(editor: Editor) -> None:
    for number in range(30):
        editor.write(f"part/m{number}.py", TRAIN)
    await editor.start()
    params = types.ExecuteCommandParams("torchlint.checkWorkspace", [])
    await editor.client.workspace_execute_command_async(params)
    for number in range(30):
        uri = uri_of(str(editor.root / f"part/m{number}.py"))
        assert codes(await editor.diagnostics(uri, None)) == ["TL201", "TL405"]
    reports = [value for values in editor.client.progress_reports.values() for value in values]
    kinds = [report.kind for report in reports]
    assert kinds.count("begin") >= 1
    assert "report" in kinds
    assert kinds.count("end") == kinds.count("begin")
    (editor.root / "part/m3.py").write_text("x = 1\n", encoding="utf-8")
    editor.seen.clear()
    await editor.client.workspace_execute_command_async(params)
    assert await editor.diagnostics(uri_of(str(editor.root / "part/m3.py")), None) == []


async def test_a_workspace_check_can_be_cancelled(editor: Editor) -> None:
    for number in range(300):
        editor.write(f"part/m{number}.py", TRAIN * 20)
    await editor.start()
    begun: list[Any] = []

    def cancel(params: types.ProgressParams) -> None:
        begun.append(params)
        stop = types.WorkDoneProgressCancelParams(params.token)
        editor.client.window_work_done_progress_cancel(stop)

    editor.client.protocol.fm.features.pop(types.PROGRESS)
    editor.client.feature(types.PROGRESS)(cancel)
    params = types.ExecuteCommandParams("torchlint.checkWorkspace", [])
    await editor.client.workspace_execute_command_async(params)
    assert begun
    assert not [params for params in editor.seen if params.diagnostics]
    uri = editor.open("part/m0.py")  # the server is there for the next question
    assert codes(await editor.diagnostics(uri)) == ["TL201", "TL405"]


async def test_a_request_can_be_cancelled(editor: Editor) -> None:
    await editor.start(SIMPLE)
    uri = editor.open("train.py", TRAIN + "\n".join(f"v{n} = [{n}]" for n in range(20_000)))
    where = types.Range(types.Position(7, 0), types.Position(7, 0))
    params = types.CodeActionParams(types.TextDocumentIdentifier(uri), where, types.CodeActionContext([]))
    question = editor.client.protocol.send_request(types.TEXT_DOCUMENT_CODE_ACTION, params, msg_id="question")
    editor.client.cancel_request(types.CancelParams("question"))
    with pytest.raises(Exception, match="cancel"):
        await asyncio.wait_for(asyncio.wrap_future(question), PATIENCE)
    assert codes(await editor.diagnostics(uri)) == ["TL201", "TL405"]


# Notebooks


async def test_cells_of_a_notebook_are_linted_together(editor: Editor) -> None:
    await editor.start(SIMPLE_WITH_NOTEBOOKS)
    notebook = NotebookSession(editor, "study.ipynb")
    notebook.open(["import torch\n%matplotlib inline", "# text", "device = torch.device('cuda')", MOVE])
    assert codes(await editor.diagnostics(notebook.uris[3])) == ["TL201"]
    assert await editor.diagnostics(notebook.uris[0]) == []
    (action, *_) = await editor.actions(notebook.uris[3], 1)
    assert applied(MOVE, edits_of(action, notebook.uris[3])) == MOVE.replace("(3).to(device)", "(3, device=device)")
    ignore = next(action for action in await editor.actions(notebook.uris[3], 1) if "ignore" in action.title)
    assert "ignore[TL201]" in applied(MOVE, edits_of(ignore, notebook.uris[3]))
    everything = await editor.actions(notebook.uris[3], 0, ["source.fixAll"])
    assert "device=device" in applied(MOVE, edits_of(everything[0], notebook.uris[3]))
    shown = await editor.hover(notebook.uris[3], 1, 8)
    assert shown is not None


async def test_cells_come_move_and_go(editor: Editor) -> None:
    await editor.start(SIMPLE_WITH_NOTEBOOKS)
    notebook = NotebookSession(editor, "study.ipynb")
    notebook.open(["import torch", MOVE])
    assert codes(await editor.diagnostics(notebook.uris[1])) == ["TL201"]
    editor.seen.clear()
    broken = notebook.insert(1, "def f(")
    assert codes(await editor.diagnostics(broken)) == ["TL000"]
    assert codes(await editor.diagnostics(notebook.uris[2])) == ["TL201"]
    editor.seen.clear()
    notebook.remove(1)
    assert await editor.diagnostics(broken, None) == []
    assert codes(await editor.diagnostics(notebook.uris[1])) == ["TL201"]
    notebook.type(1, "x = 1\n")
    assert await editor.diagnostics(notebook.uris[1], 2) == []
    notebook.close()
    assert await editor.diagnostics(notebook.uris[0], None) == []


MOVE = "device = torch.device('cuda')\nx = torch.zeros(3).to(device)\n"
SIMPLE_WITH_NOTEBOOKS = types.ClientCapabilities(
    notebook_document=types.NotebookDocumentClientCapabilities(types.NotebookDocumentSyncClientCapabilities())
)


class NotebookSession:
    """A notebook in the editor. A cell that starts with `# text` is no code."""

    def __init__(self, editor: Editor, name: str) -> None:
        self.client = editor.client
        self.uri = uri_of(str(editor.root / name))
        self.version = 1
        self.uris: list[str] = []
        self.made = 0

    def open(self, sources: list[str]) -> None:
        made = [self._cell(source) for source in sources]
        notebook = types.NotebookDocument(self.uri, "jupyter-notebook", 1, [cell for cell, _ in made])
        items = [item for _, item in made if item is not None]
        self.uris = [cell.document for cell, _ in made]
        self.client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, items))

    def insert(self, index: int, source: str) -> str:
        cell, item = self._cell(source)
        self.uris.insert(index, cell.document)
        array = types.NotebookCellArrayChange(index, 0, [cell])
        self._restructure(types.NotebookDocumentCellChangeStructure(array, did_open=[item] if item else []))
        return cell.document

    def remove(self, index: int) -> None:
        gone = types.TextDocumentIdentifier(self.uris.pop(index))
        array = types.NotebookCellArrayChange(index, 1, [])
        self._restructure(types.NotebookDocumentCellChangeStructure(array, did_close=[gone]))

    def type(self, index: int, source: str) -> None:
        content = types.NotebookDocumentCellContentChanges(
            types.VersionedTextDocumentIdentifier(uri=self.uris[index], version=2),
            [types.TextDocumentContentChangeWholeDocument(source)],
        )
        self._change(types.NotebookDocumentCellChanges(text_content=[content]))

    def close(self) -> None:
        cells = [types.TextDocumentIdentifier(uri) for uri in self.uris]
        identifier = types.NotebookDocumentIdentifier(self.uri)
        self.client.notebook_document_did_close(types.DidCloseNotebookDocumentParams(identifier, cells))

    def _cell(self, source: str) -> tuple[types.NotebookCell, types.TextDocumentItem | None]:
        self.made += 1
        uri = f"vscode-notebook-cell:{self.uri[7:]}#cell{self.made}"
        if source.startswith("# text"):
            return types.NotebookCell(types.NotebookCellKind.Markup, uri), None
        item = types.TextDocumentItem(uri, "python", 1, source)
        return types.NotebookCell(types.NotebookCellKind.Code, uri), item

    def _restructure(self, structure: types.NotebookDocumentCellChangeStructure) -> None:
        self._change(types.NotebookDocumentCellChanges(structure=structure))

    def _change(self, cells: types.NotebookDocumentCellChanges) -> None:
        self.version += 1
        identifier = types.VersionedNotebookDocumentIdentifier(self.version, self.uri)
        event = types.NotebookDocumentChangeEvent(cells=cells)
        self.client.notebook_document_did_change(types.DidChangeNotebookDocumentParams(identifier, event))


# Speed

BLOCK = """\

def step_{n}(model, batch, optimizer, device):
    output = model(batch.to(device))
    loss = output.sum() + {n}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


class Block{n}(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(self.layer(x)).relu()

"""
# What the issue asks for is 50 ms; a shared machine that is busy gets three times as long.
FACTOR = 3


async def test_a_keystroke_in_a_long_file_of_a_large_project_is_answered_at_once(editor: Editor) -> None:
    for number in range(99):
        editor.write(f"pkg/m{number}.py", "import torch\n" + BLOCK.format(n=number) * 3)
    text = "import torch\n" + "".join(BLOCK.format(n=n) for n in range(54))
    assert 1000 <= text.count("\n") <= 1100
    debounce = 0.02
    await editor.start(debounce=20)
    uri = editor.open("pkg/long.py", text)
    await editor.diagnostics(uri)
    await asyncio.sleep(1)
    times = []
    for number in range(21):
        place = types.Position(5, 0)
        started = time.perf_counter()
        version = editor.change(
            uri, types.TextDocumentContentChangePartial(types.Range(place, place), f"    value_{number} = {number}\n")
        )
        await editor.until(lambda version=version: any(p.version == version for p in editor.seen), "an answer")
        times.append(time.perf_counter() - started - debounce)
        await asyncio.sleep(0.1)
    assert statistics.median(times) < 0.050 * FACTOR, [round(1000 * t) for t in times]


# Bad messages


class Wire:
    """The server at the other end of raw bytes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def send(self, message: Any, header: bytes = b"Content-Length: %d\r\n\r\n") -> None:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        assert self.process.stdin is not None
        self.process.stdin.write((header % len(body) if b"%d" in header else header) + body)
        await self.process.stdin.drain()

    async def answer(self, number: Any) -> dict[str, Any]:
        """The answer to a request; what else is said is passed over."""
        assert self.process.stdout is not None
        while True:
            length = 0
            while (line := await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)).strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            assert length, "the server is gone"
            message: dict[str, Any] = json.loads(await self.process.stdout.readexactly(length))
            if message.get("id") == number and "method" not in message:
                return message


def _notification(method: str, params: str) -> bytes:
    return f'{{"jsonrpc": "2.0", "method": "{method}", "params": {params}}}'.encode()


async def test_bad_messages_are_answered_or_passed_over(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "torchlint", "server"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=tmp_path,
    )
    wire = Wire(process)

    def request(number: Any, method: str, params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    await wire.send(request(1, "textDocument/hover", {}))
    assert (await wire.answer(1))["error"]
    hello = {"processId": None, "rootUri": tmp_path.as_uri(), "capabilities": {}}
    await wire.send(request("early", "shutdown", None))
    assert (await wire.answer("early"))["error"]["code"] == types.ErrorCodes.ServerNotInitialized
    await wire.send(request(2, "initialize", hello))
    assert (await wire.answer(2))["result"]["serverInfo"]["name"] == "torchlint"
    await wire.send(request(3, "initialize", hello))
    assert (await wire.answer(3))["error"]
    for bad in (
        *(
            b"{",
            b"[]",
            b"null",
            b"3",
            b'"text"',
            b"\xff\xfe",
            b"[" * 100_000,
            b'{"jsonrpc": "2.0"}',
            b'{"a": [[[',
            b" ",
        ),
        b'{"jsonrpc": "2.0", "method": 17}',
        b'{"jsonrpc": "1.0", "method": "exit"}',
        b'{"jsonrpc": "2.0", "id": 99, "result": {"of": "nothing"}}',
        _notification("textDocument/didOpen", '{"textDocument": 3}'),
        _notification(
            "textDocument/didOpen",
            '{"textDocument": {"uri": "file:///x%00y.py", "languageId": "python", '
            '"version": 1, "text": "x = 1\\ud800\\u0000"}}',
        ),
        _notification(
            "textDocument/didChange",
            '{"textDocument": {"uri": "file:///x%00y.py", "version": 2}, '
            '"contentChanges": [{"range": {"start": {"line": -5, "character": -1}, '
            '"end": {"line": 900000000, "character": 0}}, "text": "x"}]}',
        ),
        _notification("workspace/didChangeWatchedFiles", '{"changes": [{"uri": "http://[", "type": 1}]}'),
        _notification("workspace/didChangeConfiguration", '{"settings": {"debounce": "soon"}}'),
        _notification("$/cancelRequest", '{"id": "unknown"}'),
    ):
        await wire.send(bad)
    await wire.send(request(4, "textDocument/hover", {"textDocument": 3}))
    assert (await wire.answer(4))["error"]["code"] == types.ErrorCodes.InvalidParams
    await wire.send(request(5, "no/such/method", {}))
    assert (await wire.answer(5))["error"]["code"] == types.ErrorCodes.MethodNotFound
    await wire.send(b'{"jsonrpc": "2.0", "method": "x"}', b"Content-Length: many\r\n\r\n")
    await wire.send(request(6, "torchlint/nothing", {}), b"content-length:%d\r\nContent-Type: x\r\n\r\n")
    assert (await wire.answer(6))["error"]["code"] == types.ErrorCodes.MethodNotFound
    resolve = {"title": "x", "data": {"uri": 3, "state": "x"}}
    await wire.send(request(7, "codeAction/resolve", resolve))
    assert (await wire.answer(7))["result"]["title"] == "x"
    await wire.send(request(8, "workspace/executeCommand", {"command": "rm"}))
    assert (await wire.answer(8))["error"]
    await wire.send(request(9, "shutdown", None))
    goodbye = await wire.answer(9)
    assert goodbye.get("result", "missing") is None, goodbye
    await wire.send({"jsonrpc": "2.0", "method": "exit"})
    assert await asyncio.wait_for(process.wait(), PATIENCE) == 0


async def test_the_server_ends_with_its_client(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "torchlint", "server", "--stdio"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=tmp_path,
    )
    await asyncio.wait_for(process.communicate(b"Content-Length: 3\r\n\r\n{"), PATIENCE)
    assert process.returncode == 0


async def test_without_the_extra_one_line_says_so(tmp_path: Path) -> None:
    blocked = "import sys; sys.modules['pygls'] = None; from torchlint.cli import main; sys.exit(main(['server']))"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", blocked), stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert (process.returncode, out) == (2, b"")
    assert err.decode().strip() == "error: the language server needs pygls: pip install 'torchlint[lsp]'"
