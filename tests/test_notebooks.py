"""Notebooks as people have them: what of a cell is Python, where findings stand, and what a repair may touch."""

from __future__ import annotations

import ast
import io
import json
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from command_line import CommandLine

from torchlint.magics import without_magics
from torchlint.source import Edit, SourceFile
from torchlint.text import spliced

MOVE = "x = torch.zeros(3).to(gpu)"
MOVED = "x = torch.zeros(3, device=gpu)"
ZERO = "optimizer.zero_grad(set_to_none=False)"


@pytest.fixture
def torchlint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line, in an empty folder, with no cache outside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHLINT_CACHE_DIR", raising=False)
    return CommandLine(capsys)


def document(*cells: str | list[str], **changes: Any) -> dict[str, Any]:
    """A notebook with these code cells and a cell of text above them; a source may be a list or a str."""
    code = {"cell_type": "code", "execution_count": 1}
    outputs = [{"name": "stdout", "output_type": "stream", "text": ["1 < 2 \u00e9\n"]}]
    rest = {"metadata": {"zz": 1, "aa": [1.0, 1e-05]}, "outputs": outputs}
    title = {"cell_type": "markdown", "metadata": {}, "source": ["# Tr\u00e4ining\n"]}
    return {
        "cells": [title, *({**code, **rest, "source": source} for source in cells)],
        "metadata": {"language_info": {"name": "python"}, "kernelspec": {"display_name": "py", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 4,
        **changes,
    }


def lines(text: str) -> list[str]:
    """A cell's source as Jupyter stores it."""
    return text.splitlines(keepends=True)


def save(*cells: str, name: str = "demo.ipynb") -> Path:
    path = Path(name)
    path.write_text(json.dumps(document(*map(lines, cells)), indent=1) + "\n", encoding="utf-8")
    return path


def sources(path: Path) -> list[str]:
    """The sources of a valid notebook's code cells."""
    book = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(book)
    return ["".join(cell.source) for cell in book.cells if cell.cell_type == "code"]


def places(run: Any) -> list[tuple[str, int | None, int]]:
    """Code, cell and row of each finding of a report in JSON."""
    return [(row["code"], row["cell"], row["location"]["row"]) for row in json.loads(run.out)]


# Magics


@pytest.mark.parametrize(
    "cell",
    [
        "%matplotlib inline",
        "%pip install -q \\\n  torch 'it",
        "!nvidia-smi | head -n 'x",
        "!!ls",
        "files = !ls *.py",
        "d['k'] = !ls",
        "d[1:2] = %sql select 'x",
        "out: list = !ls",
        "a, b = %time f(x)",
        "if files:\n    !ls \\\n      -l\n    names = !ls",
        "torch.zeros?",
        "?torch.zeros",
        "f(x)??",
        "x?  # what is it?",
        ",f a b",
        ";f a b",
        "/f a b",
        "%%bash\nls | 'x",
        "%%!\nls | 'x",
        "%%html\n<b>it's</b>",
        "%%writefile a.py\nx = = 1",
        "# a note\n%%javascript\nlet x = 'a",
        "%%capture out\n%%bash\nls |",
        "    x = 1\n    if x:\n        y = 2",
        "  %%time\n  x = 1",
        ">>> for i in x:\n...     f(i)",
        "In [12]: x = 1",
        "await f(x)",
        "async for x in y:\n    print(x)",
    ],
)
def test_what_ipython_accepts_is_no_syntax_error_and_stays(torchlint: CommandLine, cell: str) -> None:
    path = save("import torch", cell, MOVE)
    run = torchlint("--select=ALL", "--output-format=json", path)
    assert places(run) == [("TL201", 4, 1)]
    assert torchlint("--fix", "--select=ALL", path).status == 0
    assert sources(path) == ["import torch", cell, MOVED]


@pytest.mark.parametrize(
    "magic", ["%%time", "%%timeit -n 1", "%%capture", "%%capture out\n%%time", "\n %%time", "# a\n%%prun"]
)
def test_cell_magics_that_run_python_are_linted(torchlint: CommandLine, magic: str) -> None:
    path = save("import torch", f"{magic}\n{MOVE}")
    row = magic.count("\n") + 2
    assert places(torchlint("--output-format=json", path)) == [("TL201", 3, row)]
    assert torchlint("--fix", path).status == 0
    assert sources(path) == ["import torch", f"{magic}\n{MOVED}"]


@pytest.mark.parametrize(
    "cell",
    [
        'print("loss=%.3f" % x)',
        'print(f(a=1), "b=!x", "what?")',
        "x = 'a=%d' % 3",
        "x = a != b",
        "x = (a\n% b)",
        "x = a \\\n% b",
        "s = '''\n%time\n!ls\nwhy?\n'''",
        "f(key='=%d' % x)  # why?",
        's = "\\"=%d" % 3',
    ],
)
def test_python_that_looks_like_a_magic_is_left_alone(cell: str) -> None:
    assert without_magics(cell) == cell


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_stand_ins_keep_every_place(newline: str) -> None:
    cell = newline.join(["x = !ls \\", "  -l", "if x:", "    %time y", "    z = 1"])
    python = without_magics(cell)
    assert [len(line) for line in python.split(newline)] == [len(line) for line in cell.split(newline)]
    assert [type(node).__name__ for node in ast.parse(python).body] == ["Assign", "If"]


def test_nothing_is_known_of_what_a_magic_gives(torchlint: CommandLine) -> None:
    """Were `total` a plain 0, the loop would be a running sum."""
    loop = "for x, y in loader:\n    loss = model(x)\n    loss.backward()\n    total += loss.item()\nprint(total)"
    fixable = {}
    for start in ("0", "%store"):
        save("import torch\nmodel = torch.nn.Linear(3, 4).cuda()", f"total = {start}", loop)
        (row,) = json.loads(torchlint("--output-format=json", "--select=TL101").out)
        fixable[start] = row["fix"] is not None
    assert fixable == {"0": True, "%store": False}


def test_a_magic_inside_code_that_is_rewritten_is_kept_or_the_code_is_not_rewritten(torchlint: CommandLine) -> None:
    setup = "import torch\nfrom torch import nn\nmodel = nn.Linear(3, 4)\nmodel.eval()"
    loop = "for x in loader:\n    out = model(x)\n    %time x\n    print(out)"
    path = save(setup, loop)
    assert places(torchlint("--output-format=json", path)) == [("TL401", 3, 2)]
    torchlint("--fix", "--unsafe-fixes", path)
    assert sources(path) == [setup, loop]


# Places


def test_every_format_names_cell_and_row(torchlint: CommandLine) -> None:
    path = save("import torch", f"y = 1\n{MOVE}", "z = (\n")
    assert "demo.ipynb:cell 3:2:5: TL201 [*]" in torchlint("--output-format=concise").out
    assert "demo.ipynb:cell 4:1:5: TL000" in torchlint("--output-format=concise").out
    full = torchlint("--output-format=full").out
    assert "demo.ipynb:cell 3:2:5: TL201 [*]" in full
    assert f"1 | y = 1\n2 | {MOVE}\n" in full
    assert places(torchlint("--output-format=json")) == [("TL201", 3, 2), ("TL000", 4, 1)]
    (edit,) = json.loads(torchlint("--output-format=json").out)[0]["fix"]["edits"][:1]
    assert edit["location"]["row"] == 2
    diff = torchlint("--diff", path).out
    assert f'-    "{MOVE}"\n' in diff
    assert f"+    {json.dumps(MOVED)}\n" in diff
    counted = json.loads(torchlint("--statistics", "--output-format=json").out)
    assert {(row["code"], row["count"]) for row in counted} == {("TL000", 1), ("TL201", 1)}


def test_a_repair_that_failed_names_cell_and_row(torchlint: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save("import torch", f"y = 1\n{MOVE}")

    def break_it(text: SourceFile, edits: Any) -> SourceFile:
        return text if not edits else original(text, [Edit(0, 0, "(")])

    original = SourceFile.edited
    monkeypatch.setattr(SourceFile, "edited", break_it)
    before = path.read_bytes()
    run = torchlint("--fix", "--jobs=1", path)
    assert f"{path.absolute()}:cell 3:2: TL201 was not fixed" in run.err
    assert path.read_bytes() == before


def test_broken_cells_are_reported_alone(torchlint: CommandLine) -> None:
    path = save("import torch", "if x:\n  y = (", ")\n", MOVE, "    y = 1\n  z = 2")
    run = torchlint("--output-format=json", path)
    assert run.status == 1
    assert places(run) == [("TL000", 3, 2), ("TL000", 4, 1), ("TL201", 5, 1), ("TL000", 6, 1)]
    torchlint("--fix", path)
    assert sources(path) == ["import torch", "if x:\n  y = (", ")\n", MOVED, "    y = 1\n  z = 2"]


def test_a_loop_knows_the_names_of_earlier_cells(torchlint: CommandLine) -> None:
    setup = [
        "%load_ext autoreload\nimport torch\nfrom torch import nn",
        "model = nn.Linear(3, 4).cuda()",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nloss_of = nn.MSELoss()",
    ]
    loop = "for x, y in loader:\n    loss = loss_of(model(x), y)\n    print(loss.item())\n    optimizer.step()"
    save(*setup, loop)
    assert places(torchlint("--output-format=json")) == [("TL101", 5, 3)]
    save(*setup, name="setup.ipynb")
    save(loop)
    assert places(torchlint("--output-format=json", "demo.ipynb")) == []


# Suppressions


def test_suppressions_work_in_cells(torchlint: CommandLine) -> None:
    path = save("import torch", f"{MOVE}  # torchlint: ignore[TL201]", f"{MOVE}  # noqa: TL201", MOVE)
    assert places(torchlint("--output-format=json", "--select=ALL", path)) == [("TL201", 5, 1)]
    assert torchlint("--add-ignore", path).status == 0
    assert sources(path)[3] == f"{MOVE}  # torchlint: ignore[TL201]"
    assert torchlint("--select=ALL", path).status == 0


def test_a_whole_notebook_is_ignored_from_its_top_even_below_magics(torchlint: CommandLine) -> None:
    path = save("%load_ext autoreload\n%autoreload 2", "# torchlint: ignore-file", f"import torch\n{MOVE}")
    assert torchlint("--select=ALL", path).status == 0


def test_a_suppression_that_ends_a_cell_is_deleted_without_a_trace(torchlint: CommandLine) -> None:
    comment = "# torchlint: ignore[TL101]"
    path = save(f"x = 1\n{comment}", comment, f"y = 2  {comment}", f"{comment}\nz = 3")
    assert torchlint("--fix", "--select=ALL", path).status == 0
    assert sources(path) == ["x = 1", "", "y = 2", "z = 3"]


# Writing

STYLES: dict[str, dict[str, Any]] = {
    "jupyter": {"indent": 1},
    "two": {"indent": 2},
    "tab": {"indent": "\t"},
    "one line": {},
    "compact": {"separators": (",", ":")},
    "sorted": {"indent": 1, "sort_keys": True},
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("kind", ["list", "string"])
@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
def test_a_repair_changes_nothing_but_its_lines(
    torchlint: CommandLine, style: str, escaped: bool, kind: str, ending: str
) -> None:
    cell = f"# caf\u00e9 <b>\n{MOVE}\nprint('\u00e9', x)"

    def encoded(text: str) -> bytes:
        source = lines(text) if kind == "list" else text
        return (json.dumps(document(["import torch"], source), ensure_ascii=escaped, **STYLES[style]) + ending).encode()

    path = Path("demo.ipynb")
    path.write_bytes(encoded(cell))
    assert torchlint("--fix", path).status == 0
    assert path.read_bytes() == encoded(cell.replace(MOVE, MOVED))
    assert sources(path)[1] == cell.replace(MOVE, MOVED)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", ["list", "string"])
def test_a_repair_that_adds_lines_adds_strings(torchlint: CommandLine, style: str, kind: str) -> None:
    setup = "import torch\nmodel = torch.nn.Linear(3, 4)\nmodel.eval()"
    loop = "for x in loader:\n    print(model(x))"
    wrapped = "with torch.no_grad():\n    for x in loader:\n        print(model(x))"

    def encoded(text: str) -> bytes:
        source = lines(text) if kind == "list" else text
        return json.dumps(document([setup], source), **STYLES[style]).encode()

    path = Path("demo.ipynb")
    path.write_bytes(encoded(loop))
    assert torchlint("--fix", "--unsafe-fixes", path).status == 0
    assert path.read_bytes() == encoded(wrapped)


def test_windows_newlines_byte_order_mark_and_html_escapes_stay(torchlint: CommandLine) -> None:
    def encoded(text: str) -> bytes:
        body = json.dumps(document(lines(f"import torch\nassert 1 < 2 > 0\n{text}")), indent=2)
        body = body.replace("<", "\\u003c").replace(">", "\\u003e").replace("\n", "\r\n")
        return b"\xef\xbb\xbf" + body.encode() + b"\r\n"

    path = Path("demo.ipynb")
    path.write_bytes(encoded(f"{MOVE} if 1 < 2 else 3"))
    torchlint("--fix", path)
    assert path.read_bytes() == encoded(f"{MOVED} if 1 < 2 else 3")


def test_statements_that_end_a_cell_are_dropped_there(torchlint: CommandLine) -> None:
    path = save("import torch\ndevice = 'cuda'", "x = torch.zeros(3)\nx = x.to(device)", "y = x + 1")
    assert torchlint("--fix", "--unsafe-fixes", path).status == 0
    assert sources(path) == ["import torch\ndevice = 'cuda'", "x = torch.zeros(3, device=device)", "y = x + 1"]


def test_a_list_of_one_string_keeps_its_form(torchlint: CommandLine) -> None:
    path = Path("demo.ipynb")
    path.write_text(json.dumps(document([f"import torch\n{MOVE}\nprint(x)"]), indent=1))
    assert torchlint("--fix", path).status == 0
    assert json.loads(path.read_text())["cells"][1]["source"] == [f"import torch\n{MOVED}\nprint(x)"]


def test_the_edits_of_a_report_mend_the_cell(torchlint: CommandLine) -> None:
    """What an editor does with the JSON report: rows and columns count inside the cell."""
    cell = f"'\u00e9\U0001f600'; {MOVE}"
    save("import torch", cell)
    (row,) = json.loads(torchlint("--output-format=json").out)
    assert row["cell"] == 3
    edits = [
        Edit(edit["location"]["column"] - 1, edit["end_location"]["column"] - 1, edit["content"])
        for edit in row["fix"]["edits"]
    ]
    assert spliced(cell, sorted(edits)) == cell.replace(MOVE, MOVED)


def test_a_notebook_comes_through_standard_input(torchlint: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(document(["import torch\n", MOVE]), indent=1)
    for arguments in (["--output-format=json"], ["--fix", "-q"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        run = torchlint(*arguments, "--stdin-filename", "new.ipynb", "-")
        if "--fix" in arguments:
            assert run.out == text.replace(MOVE, MOVED)
        else:
            assert places(run) == [("TL201", 2, 2)]


# Bad input


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            '{"nbformat": 3, "nbformat_minor": 0, "worksheets": [], "metadata": {}}',
            "1:1: TL000 the notebook has format 3",
        ),
        ('{"cells": [\n <<<<<<< HEAD\n', "2:2: TL000 the notebook is not valid JSON"),
        ('{"cells": [],\n "metadata": {}', "2:16: TL000 the notebook is not valid JSON"),
        ("{}", "1:1: TL000 the JSON is no notebook: it has no cells"),
        ("[1]", "1:1: TL000 the notebook is not valid JSON: the notebook has to be an object"),
        ('{"cells": {}}', "1:11: TL000 the notebook is not valid JSON: expected a list"),
        ('{"cells": [{"cell_type": "code", "source": 1}]}', "1:44: TL000"),
        ("version https://git-lfs.github.com/spec/v1\n", "1:1: TL000 the notebook is not valid JSON"),
    ],
)
def test_a_file_that_is_no_notebook_of_format_4_costs_one_line(torchlint: CommandLine, data: str, message: str) -> None:
    path = Path("demo.ipynb")
    path.write_text(data)
    save("import torch", MOVE, name="good.ipynb")
    run = torchlint("--output-format=concise", "--fix", "-q", ".")
    (line,) = run.out.splitlines()
    assert line.startswith(f"demo.ipynb:{message}")
    assert (run.status, run.err, path.read_text()) == (1, "", data)
    assert sources(Path("good.ipynb"))[1] == MOVED


def test_old_notebooks_are_told_how_to_become_new_ones(torchlint: CommandLine) -> None:
    old = nbformat.v3.new_notebook(worksheets=[nbformat.v3.new_worksheet(cells=[nbformat.v3.new_code_cell(MOVE)])])
    path = Path("demo.ipynb")
    path.write_text(nbformat.writes(old, version=3))
    assert "jupyter nbconvert --to notebook --inplace" in torchlint(path).out
    nbformat.write(nbformat.read(path, as_version=4), path)
    assert torchlint("--select=TL000", path).status == 0


def test_cells_and_notebooks_in_other_languages_are_left_alone(torchlint: CommandLine) -> None:
    book = document(["import torch"], ["x <- 3 |> f"], [MOVE])
    book["cells"][2]["metadata"] = {"vscode": {"languageId": "r"}}
    Path("demo.ipynb").write_text(json.dumps(book))
    assert places(torchlint("--output-format=json")) == [("TL201", 4, 1)]
    book = document(["x <- 3 |> f"], metadata={"language_info": {"name": "R"}})
    Path("demo.ipynb").write_text(json.dumps(book))
    assert torchlint("--select=ALL").status == 0


@pytest.mark.parametrize("cell", ["x = '\x00'", "x = '\ud800'", "x = " + "(" * 5_000])
def test_cells_that_no_parser_takes_cost_only_themselves(torchlint: CommandLine, cell: str) -> None:
    Path("demo.ipynb").write_text(json.dumps(document(["import torch"], [cell], [MOVE])))
    run = torchlint("--output-format=json")
    assert places(run) == [("TL000", 3, 1), ("TL201", 4, 1)]
    assert run.err == ""


# Percent scripts


def test_percent_scripts_are_plain_files(torchlint: CommandLine) -> None:
    text = "# ---\n# jupyter:\n#   jupytext: {}\n# ---\n\n# %% [markdown]\n# # Title\n\n# %%\n# %matplotlib inline\n"
    text += f"# !ls\nimport torch\n\n# %% tags=['x']\n# %%time\n{MOVE}\n"
    path = Path("script.py")
    path.write_text(text)
    assert places(torchlint("--output-format=json", path)) == [("TL201", None, 16)]
    assert torchlint("--fix", "--select=ALL", path).status == 0
    assert path.read_text() == text.replace(MOVE, MOVED)
