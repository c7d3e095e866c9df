"""What the editor shows: open files and notebooks, with their unsaved text.

pygls keeps documents too, but splits lines where Python and the protocol do not (form feeds, U+2028) and applies
changes whatever their version; both would put findings and fixes in the wrong place.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lsprotocol import types

from torchlint.server.positions import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PYTHON = "python"


def path_of(uri: str) -> str:
    """The absolute path that a file URI means, "" for other schemes (an untitled buffer) and what can be no path."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    if parts.scheme != "file":
        return ""
    path = unquote(parts.path, errors="surrogateescape")
    if os.name == "nt":
        from urllib.request import url2pathname

        path = url2pathname(parts.path)
    elif parts.netloc and parts.netloc != "localhost":
        path = f"//{parts.netloc}{path}"
    return os.path.abspath(path) if path and "\0" not in path else ""


def uri_of(path: str) -> str:
    """The file URI of an absolute path."""
    return Path(path).as_uri()


@dataclass(frozen=True)
class Part:
    """A text that the client knows by a URI: a whole file, or one cell of a notebook.

    `cell` counts all cells of the notebook from 1; it is 0 for a file.
    """

    uri: str
    version: int
    text: Text
    cell: int = 0


@dataclass(frozen=True)
class Document:
    """One open file or notebook, as it is now. `path` is what it is linted as, "" where nothing says."""

    uri: str
    path: str
    version: int
    parts: tuple[Part, ...]
    is_notebook: bool = False
    cells: int = 0

    @property
    def raw(self) -> bytes:
        """The content as a file would hold it; a notebook's outputs are left out."""
        if not self.is_notebook:
            return self.parts[0].text.content.encode("utf-8", "surrogatepass")
        sources = {part.cell: part.text.content for part in self.parts}
        cells = [
            {"cell_type": "code" if number in sources else "markdown", "source": sources.get(number, "")}
            for number in range(1, self.cells + 1)
        ]
        return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()

    @property
    def state(self) -> tuple[int, ...]:
        """What changes whenever the text does."""
        return self.version, *(part.version for part in self.parts)

    def part(self, cell: int) -> Part | None:
        """The text that a finding's cell names."""
        return next((part for part in self.parts if part.cell == cell), None)

    def part_at(self, uri: str) -> Part | None:
        """The text that the client knows by this URI."""
        return next((part for part in self.parts if part.uri == uri), None)


@dataclass
class _Cells:
    """An open notebook: the URI of each cell in order, and the texts of its Python cells."""

    uri: str
    version: int
    order: list[str]
    parts: dict[str, Part] = field(default_factory=dict)


class Documents:
    """All that is open. Changes that come late, or speak of what is not open, change nothing and give None."""

    def __init__(self) -> None:
        self.encoding: str = types.PositionEncodingKind.Utf16
        self._files: dict[str, Part] = {}
        self._notebooks: dict[str, _Cells] = {}

    def __iter__(self) -> Iterator[Document]:
        for uri in [*self._files, *self._notebooks]:
            document = self.get(uri)
            if document is not None:
                yield document

    def get(self, uri: str) -> Document | None:
        """The document that a URI (a cell's as well) belongs to."""
        if uri in self._files:
            part = self._files[uri]
            return Document(uri, _lint_path(uri), part.version, (part,))
        for notebook in self._notebooks.values():
            if uri == notebook.uri or uri in notebook.parts:
                return _document(notebook)
        return None

    def open_file(self, item: types.TextDocumentItem) -> Document | None:
        """Note a file that was opened; None where it is no Python."""
        if item.language_id.lower() != _PYTHON and not _is_python(item):
            return None
        self._files[item.uri] = Part(item.uri, item.version, Text(item.text, self.encoding))
        return self.get(item.uri)

    def change_file(self, params: types.DidChangeTextDocumentParams) -> Document | None:
        """Note a change of an open file."""
        uri, version = params.text_document.uri, params.text_document.version
        known = self._files.get(uri)
        if known is None or version <= known.version:
            return None
        self._files[uri] = replace(known, version=version, text=_changed(known.text, params.content_changes))
        return self.get(uri)

    def close_file(self, uri: str) -> bool:
        """Forget a file; whether it was open."""
        return self._files.pop(uri, None) is not None

    def open_notebook(self, params: types.DidOpenNotebookDocumentParams) -> Document:
        """Note a notebook that was opened."""
        notebook = params.notebook_document
        cells = _Cells(notebook.uri, notebook.version, [cell.document for cell in notebook.cells])
        self._notebooks[notebook.uri] = cells
        for item in params.cell_text_documents:
            self._open_cell(cells, item)
        return _document(cells)

    def change_notebook(self, params: types.DidChangeNotebookDocumentParams) -> tuple[Document, list[str]] | None:
        """Note a change of an open notebook: what it is now, and the URIs of cells that are gone."""
        cells = self._notebooks.get(params.notebook_document.uri)
        if cells is None or params.notebook_document.version < cells.version:
            return None
        cells.version = params.notebook_document.version
        gone: list[str] = []
        change = params.change.cells
        if change is not None and change.structure is not None:
            gone = self._restructure(cells, change.structure)
        for content in (change.text_content if change is not None else None) or ():
            known = cells.parts.get(content.document.uri)
            if known is not None and content.document.version > known.version:
                text = _changed(known.text, content.changes)
                cells.parts[known.uri] = replace(known, version=content.document.version, text=text)
        return _document(cells), gone

    def close_notebook(self, uri: str) -> list[str]:
        """Forget a notebook; the URIs of its cells."""
        cells = self._notebooks.pop(uri, None)
        return list(cells.parts) if cells is not None else []

    def _open_cell(self, cells: _Cells, item: types.TextDocumentItem) -> None:
        if item.language_id.lower() == _PYTHON:
            cells.parts[item.uri] = Part(item.uri, item.version, Text(item.text, self.encoding))

    def _restructure(self, cells: _Cells, structure: types.NotebookDocumentCellChangeStructure) -> list[str]:
        array = structure.array
        cells.order[array.start : array.start + array.delete_count] = [cell.document for cell in array.cells or ()]
        gone = [item.uri for item in structure.did_close or () if cells.parts.pop(item.uri, None)]
        for item in structure.did_open or ():
            self._open_cell(cells, item)
        return gone


def _document(cells: _Cells) -> Document:
    parts = tuple(
        replace(cells.parts[uri], cell=number) for number, uri in enumerate(cells.order, 1) if uri in cells.parts
    )
    path = path_of(cells.uri)
    if path and not path.endswith(".ipynb"):
        path += ".ipynb"  # another kind of notebook, of which the cells are all we know
    return Document(cells.uri, path, cells.version, parts, True, len(cells.order))


def _lint_path(uri: str) -> str:
    """The path of a file; a notebook that an editor shows as a script is none."""
    path = path_of(uri)
    return f"{path}.py" if path.endswith(".ipynb") else path


def _is_python(item: types.TextDocumentItem) -> bool:
    return not item.language_id and item.uri.endswith(".py")


def _changed(text: Text, changes: Sequence[types.TextDocumentContentChangeEvent]) -> Text:
    for change in changes:
        if isinstance(change, types.TextDocumentContentChangePartial):
            text = text.changed(change.range, change.text)
        else:
            text = Text(change.text, text.encoding)
    return text
