"""Bytes to text and back, positions, and notebooks."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlint.source import Edit, SourceError, SourceFile

PY = Path("a.py")
NB = Path("a.ipynb")


def text_file(text: str) -> SourceFile:
    return SourceFile.from_bytes(PY, text.encode())


def notebook(*sources: str | list[str], indent: int | None = 1, kinds: str = "", escape: bool = False) -> bytes:
    """A notebook with these cells; `kinds` has a letter a cell, c for code and m for markdown."""
    kinds = kinds or "c" * len(sources)
    cells: list[dict[str, object]] = []
    for number, (kind, source) in enumerate(zip(kinds, sources, strict=True)):
        lines = source.splitlines(keepends=True) if isinstance(source, str) else "".join(source)
        cell: dict[str, object] = {
            "cell_type": {"c": "code", "m": "markdown"}[kind],
            "id": f"größe-{number}",
            "metadata": {},
        }
        cells.append(cell | ({"outputs": [], "execution_count": None} if kind == "c" else {}) | {"source": lines})
    document = {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    return (json.dumps(document, indent=indent, ensure_ascii=escape) + "\n").encode()


def replaced(source: SourceFile, old: str, new: str) -> SourceFile:
    start = source.text.index(old)
    return source.edited([Edit(start, start + len(old), new)])


# Encodings and newlines


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x = 1",
        b"x = 1\r\ny = 2\rz = 3\n",
        b"\xef\xbb\xbfx = 1\n",
        b"\xef\xbb\xbf# coding: utf-8\nx = '\xc3\xa9'\n",
        b"# -*- coding: latin-1 -*-\nx = '\xe9'\n",
        b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nx = '\x80'\n",
        b"x = '''\x0c\r\n\xe2\x80\xa8'''\n\x0cdef f():\n\tpass\n",
        b"x = 1\ncoding = 3  # no coding: latin-1 comment on the third line\ny = 'coding: latin-1'\n",
    ],
)
def test_unchanged_files_keep_their_bytes(data: bytes) -> None:
    source = SourceFile.from_bytes(PY, data)
    source.parse()
    assert source.encode() == data


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60))
def test_any_text_survives(text: str) -> None:
    data = text.encode()
    if b"coding" not in data:
        assert SourceFile.from_bytes(PY, data).encode() == data
    source = SourceFile.from_text(PY, text)
    assert ("\ufeff" if source.bom else "") + source.text == text
    assert "".join(source.line(n + 1) for n in range(len(source.line_starts))) == source.text.replace("\r", "").replace(
        "\n", ""
    )


@pytest.mark.parametrize(
    ("data", "message", "place"),
    [
        (b"x = 1\ny = '\xff'\n", "not utf-8", (2, 6)),
        (b"x = 1\r\n\xc3\xa9 = \x00", "NUL", (2, 5)),
        (b"# coding: latin-1\x00", "NUL", (1, 18)),
        (b"# coding: klingon\n", "klingon", (1, 1)),
        (b"\xef\xbb\xbf# coding: latin-1\n", "encoding problem", (1, 1)),
        (b"# coding: rot13\n", "rot13", (1, 1)),
        (b"# coding: ascii\n\xe9", "not ascii", (2, 1)),
    ],
)
def test_unreadable_bytes_are_named_with_their_place(data: bytes, message: str, place: tuple[int, int]) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        SourceFile.from_bytes(PY, data)
    assert (caught.value.line, caught.value.column) == place


def test_text_that_the_encoding_lacks_cannot_be_written() -> None:
    source = SourceFile.from_bytes(PY, b"# coding: latin-1\nx = 1\n")
    with pytest.raises(SourceError, match="iso-8859-1"):
        replaced(source, "1", "'\u2248'").encode()


@pytest.mark.parametrize(
    ("text", "newline"), [("", "\n"), ("a\r\nb\r\nc\n", "\r\n"), ("a\rb\r", "\r"), ("a\nb\r\nc\n", "\n")]
)
def test_the_newline_is_the_one_of_most_lines(text: str, newline: str) -> None:
    assert text_file(text).newline == newline


# Parsing and positions


@pytest.mark.parametrize(
    ("text", "place"),
    [("x = (\n", (1, 5)), ("x = 1\n  y = 2\n", (2, 3)), ("é = 'ü' 3", (1, 5)), ("if x:\n\ty\n        z\n", (3, 10))],
)
def test_syntax_errors_have_a_place(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(SourceError) as caught:
        text_file(text).parse()
    assert caught.value.line == place[0]
    assert caught.value.column >= 1


@pytest.mark.parametrize(
    "text",
    [
        "x = " + " + ".join(["a"] * 3_000),
        "x = " + "(" * 1_000 + ")" * 1_000,
        "x = " + "-" * 100_000 + "1",
        "x" + ".y" * 50_000,
    ],
    ids=["sum", "parentheses", "minuses", "attributes"],
)
def test_deep_code_ends_in_a_result_or_an_error(text: str) -> None:
    program = (
        "import sys; from pathlib import Path; from torchlint.source import *\n"
        "try: SourceFile.from_text(Path('a.py'), sys.stdin.read()).parse()\n"
        "except SourceError: pass\n"
        "print(sys.getrecursionlimit())"
    )
    done = subprocess.run([sys.executable, "-c", program], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1000\n"), done.stderr


def test_invalid_escapes_warn_nobody(recwarn: pytest.WarningsRecorder) -> None:
    text_file("x = '\\d'\n").parse()
    assert not recwarn.list


@given(
    st.lists(
        st.sampled_from(["x", "é", "'𐐷'", "(ß, y)", "f(ü)", "x\x0c", "\t1"]),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_spans_are_the_text_of_their_nodes(parts: list[str], newline: str) -> None:
    source = text_file(newline.join(f"a = {part}; b = {part}" for part in parts))
    for node in ast.walk(source.parse()):
        if isinstance(node, ast.expr):
            segment = source.segment(node)
            assert ast.dump(ast.parse(f"({segment})", mode="eval").body).replace("Load", "Store") == ast.dump(
                node
            ).replace("Load", "Store")
            start, _ = source.span(node)
            line, column = source.position(start)
            assert source.line(line)[column - 1 :].startswith(segment.split(newline)[0])
            assert line == node.lineno


# Notebooks


def test_a_notebook_is_its_code_cells_joined_by_newlines() -> None:
    source = SourceFile.from_bytes(NB, notebook("a = 1\nb = 2", "# Title", "c = 3\n", "", kinds="cmcc"))
    assert source.text == "a = 1\nb = 2\nc = 3\n\n"
    assert [source.cell_position(line) for line in range(1, 6)] == [(1, 1), (1, 2), (3, 1), (3, 2), (4, 1)]


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("escape", [False, True])
def test_an_edit_changes_only_its_line_of_the_json(indent: int | None, escape: bool) -> None:
    data = notebook("x = 'ä'\nf(False)\ny", "f(1)", indent=indent, escape=escape)
    source = SourceFile.from_bytes(NB, data)
    assert source.encode() == data
    assert replaced(source, "False", "").encode() == data.replace(b"f(False)", b"f()")
    assert replaced(source, "'ä'", "'äö'").encode() == data.replace(
        rb"\u00e4" if escape else "ä".encode(), rb"\u00e4\u00f6" if escape else "äö".encode()
    )


def test_inserted_and_deleted_lines_become_strings_of_their_own() -> None:
    source = SourceFile.from_bytes(NB, notebook("a\nb", "c"))
    assert replaced(source, "a\n", "a\n@x\n").encode() == notebook("a\n@x\nb", "c")
    assert replaced(source, "b", "b\nd").encode() == notebook("a\nb\nd", "c")
    assert replaced(source, "a\n", "").encode() == notebook("b", "c")
    assert replaced(source, "\nb", "").encode() == notebook("a", "c")
    assert replaced(source, "c", "x\ny\nz").encode() == notebook("a\nb", "x\ny\nz")


def test_a_source_in_one_string_stays_one() -> None:
    data = b'{"cells": [{"source": "a\\/b\\nf(1)\\u00e9\\"", "cell_type": "code"}]}'
    source = SourceFile.from_bytes(NB, data)
    assert source.text == 'a/b\nf(1)é"'
    assert replaced(source, "1", "ö\n2").encode() == data.replace(b"f(1)", b"f(\\u00f6\\n2)")


@given(st.data())
def test_a_respliced_notebook_reads_as_it_was_edited(data: st.DataObject) -> None:
    alphabet = st.text(st.sampled_from('ab\n"\\é/\t'), max_size=12)
    cells = data.draw(st.lists(alphabet, min_size=1, max_size=3))
    source = SourceFile.from_bytes(NB, notebook(*cells, escape=data.draw(st.booleans())))
    edits, start = [], 0
    for cell in cells:
        first = data.draw(st.integers(0, len(cell)))
        last = data.draw(st.integers(first, len(cell)))
        if cell and data.draw(st.booleans()):
            edits.append(Edit(start + first, start + last, data.draw(alphabet)))
        start += len(cell) + 1
    edited = source.edited(edits)
    again = SourceFile.from_bytes(NB, edited.encode())
    assert again.text == edited.text
    assert json.loads(edited.encode())["metadata"] == json.loads(source.raw)["metadata"]


def test_an_edit_across_cells_is_refused() -> None:
    source = SourceFile.from_bytes(NB, notebook("a", "b"))
    with pytest.raises(ValueError, match="two cells"):
        source.edited([Edit(0, 3, "")])


@pytest.mark.parametrize(
    "cell",
    [
        "%matplotlib inline\nx = 1",
        "for i in x:\n    !pip install \\\n   foo's\n    y()",
        "files = !ls\nx",
        "%%bash\nls | 'x",
        "\n%%time\nx = 1",
        "model?",
        "?model",
        "a, b = %time f(x)",
        "await f(x)",
        "!ls 'it\r\nx = 1\r\n",
        "x = (b\n% c)\ny = '''\n%foo\n!bar\n'''\nz = a != b",
        "x = y \\\n% z",
        'x = f"{a}" "\\"(" # (\n%cd ..',
    ],
)
def test_magics_do_not_hinder_parsing(cell: str) -> None:
    source = SourceFile.from_bytes(NB, notebook(cell, "last = f(1)"))
    *_, last = source.parse().body
    assert source.cell_errors == []
    assert source.segment(last) == "last = f(1)"
    assert source.text == f"{cell}\nlast = f(1)"


def test_python_in_notebooks_is_left_to_the_parser() -> None:
    cell = "x = (b\n% c)\ny = '''\n%foo\n'''\nz = a != b\n"
    assert SourceFile.from_bytes(NB, notebook(cell)).python == cell


def test_a_broken_cell_costs_only_itself() -> None:
    source = SourceFile.from_bytes(NB, notebook("a = 1", "f(\n", ")\nb = = 2", "c = 3"))
    assert [source.segment(statement) for statement in source.parse().body] == ["a = 1", "c = 3"]
    assert [source.cell_position(error.line) for error in source.cell_errors] == [(2, 1), (3, 1)]


@pytest.mark.parametrize(
    ("first", "second"), [("f(", ")"), ("if x:\n    y", "else:\n    z"), ("x = 1 \\", "y = 2"), ("'''", "'''")]
)
def test_code_does_not_run_on_from_cell_to_cell(first: str, second: str) -> None:
    assert SourceFile.from_bytes(NB, notebook(first, second)).cell_errors


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"cells": 3}',
        b'{"cells": [{"source": 3}]}',
        b"{} x",
        b'{"nbformat": 3, "worksheets": []}',
        b'{"cells": [{"source": ["a\n"]}]}',
        b"\xff",
        b'{"cells": ' + b"[" * 100_000,
    ],
)
def test_a_broken_notebook_is_an_error(data: bytes) -> None:
    with pytest.raises(SourceError):
        SourceFile.from_bytes(NB, data)


def test_notebooks_of_other_languages_hold_no_python() -> None:
    data = notebook("x <- 3").replace(b'"python"', b'"R"')
    source = SourceFile.from_bytes(NB, data)
    assert (source.text, source.encode()) == ("", data)


def test_an_empty_notebook_is_empty() -> None:
    assert SourceFile.from_bytes(NB, b"").parse().body == []
