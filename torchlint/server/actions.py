"""What an editor offers to do about findings: repair one, repair all, ignore one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from torchlint.add_ignore import with_ignores
from torchlint.engine import SYNTAX_ERROR, UNUSED_SUPPRESSION
from torchlint.server.convert import diagnostic, span
from torchlint.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torchlint.diagnostics import Diagnostic
    from torchlint.server.documents import Document, Part
    from torchlint.server.session import Linted, Session
    from torchlint.source import SourceFile

FIX_ALL = "source.fixAll.torchlint"
KINDS = (types.CodeActionKind.QuickFix, FIX_ALL)


class NotApplied(Exception):  # noqa: N818
    """An action that cannot be carried out; the message says why."""


@dataclass(frozen=True)
class Abilities:
    """What a client can do: take edits with versions, ask for an edit once it is wanted, mark an action preferred."""

    versions: bool = False
    resolves: bool = False
    prefers: bool = False


class Actions:
    """Makes code actions of one session."""

    def __init__(self, session: Session, abilities: Abilities) -> None:
        self._session = session
        self._abilities = abilities

    def offered(
        self, linted: Linted, part: Part, where: types.Range, only: Sequence[str] | None
    ) -> list[types.CodeAction]:
        """What can be done about the findings in a range. Edits are left out where the client can ask for them."""
        actions: list[types.CodeAction] = []
        if _wants(only, types.CodeActionKind.QuickFix):
            for index, finding in enumerate(linted.report.findings):
                if finding.cell == part.cell and _touches(span(finding, part.text), where):
                    actions += self._about(linted, part, index, finding)
        if _wants(only, FIX_ALL) and any(f.fix and f.fix.is_safe for f in linted.report.findings):
            title = "torchlint: make all safe fixes"
            actions += self._action(linted, title, FIX_ALL, None, "fix-all", -1)
        return actions

    def resolved(self, action: types.CodeAction, document: Document, linted: Linted) -> types.CodeAction:
        """An action with its edit. Raises NotApplied where there is none, or the document is another by now."""
        data: Any = action.data
        if list(data["state"]) != list(document.state):
            raise NotApplied("the text has changed since")
        action.edit = self._edit(linted, data["do"], data["finding"])
        return action

    def _about(self, linted: Linted, part: Part, index: int, finding: Diagnostic) -> list[types.CodeAction]:
        actions = []
        shown = diagnostic(finding, part.text)
        if finding.fix is not None:
            title = finding.fix.message
            if not finding.fix.is_safe:
                title = f"unsafe: {title}" + (f" ({finding.fix.reason})" if finding.fix.reason else "")
            title = f"{finding.code}: {title}" if finding.fix.is_safe else title
            actions += self._action(linted, title, types.CodeActionKind.QuickFix, shown, "fix", index)
            if self._abilities.prefers and finding.fix.is_safe:
                for action in actions:
                    action.is_preferred = True
        if finding.code not in (SYNTAX_ERROR, UNUSED_SUPPRESSION):
            title = f"ignore {finding.code} on this line"
            actions += self._action(linted, title, types.CodeActionKind.QuickFix, shown, "ignore", index)
        return actions

    def _action(
        self, linted: Linted, title: str, kind: str, about: types.Diagnostic | None, do: str, index: int
    ) -> list[types.CodeAction]:
        """One action; none where it would come with an edit, and there is none."""
        action = types.CodeAction(title, kind=kind, diagnostics=[about] if about else None)
        if self._abilities.resolves:
            document = linted.document
            action.data = {"uri": document.uri, "state": list(document.state), "do": do, "finding": index}
            return [action]
        try:
            action.edit = self._edit(linted, do, index)
        except NotApplied:
            return []
        return [action]

    def _edit(self, linted: Linted, do: str, index: int) -> types.WorkspaceEdit:
        steps: dict[str, Callable[[], tuple[SourceFile, SourceFile]]] = {
            "fix": lambda: self._fixed(linted, index),
            "ignore": lambda: self._ignored(linted, index),
            "fix-all": lambda: self._all_fixed(linted),
        }
        try:
            before, after = steps[do]()
        except (SourceError, UnicodeError) as error:
            raise NotApplied(str(error)) from error
        return self._workspace_edit(linted.document, before, after)

    def _fixed(self, linted: Linted, index: int) -> tuple[SourceFile, SourceFile]:
        before, after, failures = self._session.fix_one(linted.document, linted.report.findings[index])
        if after is before:
            raise NotApplied(failures or "its text does not allow it")
        return before, after

    def _all_fixed(self, linted: Linted) -> tuple[SourceFile, SourceFile]:
        fixed = self._session.fix_all(linted.document)
        if fixed is None:
            raise NotApplied("no safe fix can be made")
        return fixed

    def _ignored(self, linted: Linted, index: int) -> tuple[SourceFile, SourceFile]:
        source = self._session.source(linted.document)
        return source, with_ignores(source, [linted.report.findings[index]])

    def _workspace_edit(self, document: Document, before: SourceFile, after: SourceFile) -> types.WorkspaceEdit:
        texts = _texts(after)
        edits = {
            part: part.text.edits_to(texts[part.cell])
            for part in document.parts
            if texts[part.cell] != _texts(before)[part.cell]
        }
        if self._abilities.versions:
            versioned = [
                types.TextDocumentEdit(
                    types.OptionalVersionedTextDocumentIdentifier(part.uri, version=part.version), list(own)
                )
                for part, own in edits.items()
            ]
            return types.WorkspaceEdit(document_changes=list(versioned))
        return types.WorkspaceEdit(changes={part.uri: own for part, own in edits.items()})


def _texts(source: SourceFile) -> dict[int, str]:
    """The text of a file, under 0, or of each of a notebook's code cells."""
    if source.notebook is None:
        return {0: ("\ufeff" if source.bom else "") + source.text}
    return {cell.number: cell.source for cell in source.notebook.cells}


def _wants(only: Sequence[str] | None, kind: str) -> bool:
    return only is None or any(kind == wanted or kind.startswith(f"{wanted}.") for wanted in only)


def _touches(finding: types.Range, where: types.Range) -> bool:
    """Whether a finding stands on the lines of a range: a cursor anywhere on a line asks for what can be done there."""
    return finding.start.line <= where.end.line and where.start.line <= finding.end.line
