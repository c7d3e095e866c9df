"""Passes, verification and writing, with rules made up for the purpose."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlint.fixing import apply
from torchlint.fixing.apply import WriteError, fix_source, write_atomically
from torchlint.fixing.edits import Edit, Unfixable, decorate, drop_argument, drop_statement, set_argument
from torchlint.rule import Fix, Safety
from torchlint.source import SourceFile
from torchlint.text import spliced


@dataclass(frozen=True)
class Found:
    code: str
    offset: int
    fix: Fix | None


Repair = Callable[[SourceFile, ast.Call], list[Edit]]


def calls(source: SourceFile) -> Iterator[ast.Call]:
    return (node for node in ast.walk(source.parse()) if isinstance(node, ast.Call))


def lint_for(
    repairs: dict[str, Repair], safety: Safety = Safety.SAFE, bad: Callable[[ast.Call], bool] = lambda call: True
) -> Callable[[SourceFile], list[Found]]:
    """A linter that finds the calls of the given names that are `bad`, one finding a line, and repairs them."""

    def lint(source: SourceFile) -> list[Found]:
        found: dict[tuple[str, int], Found] = {}
        for call in calls(source):
            name = ast.unparse(call.func)
            if name in repairs and bad(call):
                fix = Fix("", safety, lambda call=call, name=name: repairs[name](source, call))  # type: ignore[misc]
                found.setdefault((name, call.lineno), Found(name, source.span(call)[0], fix))
        return list(found.values())

    return lint


def unkeyed(call: ast.Call) -> bool:
    return not any(keyword.arg == "k" for keyword in call.keywords)


def keyed(source: SourceFile, call: ast.Call) -> list[Edit]:
    return set_argument(source, call, "k", "1")


def text_file(text: str) -> SourceFile:
    return SourceFile.from_text(Path("a.py"), text)


# Passes


def test_fixes_are_applied_until_none_is_left() -> None:
    lint = lint_for({"f": keyed}, bad=unkeyed)
    result = fix_source(text_file("f(f(2), f(3))\nf(4); f(5)\n"), lint)
    assert result.text == "f(f(2, k=1), f(3, k=1), k=1)\nf(4, k=1); f(5, k=1)\n"
    assert [(a.code, a.line) for a in result.applied].count(("f", 1)) == 3
    assert result.failures == []
    again = fix_source(result.source, lint)
    assert again.source is result.source
    assert again.applied == []


def test_unsafe_fixes_need_permission() -> None:
    lint = lint_for({"f": keyed}, Safety.UNSAFE, unkeyed)
    assert fix_source(text_file("f()"), lint).text == "f()"
    assert fix_source(text_file("f()"), lint, allow_unsafe=True).text == "f(k=1)"


def test_passes_end_after_ten() -> None:
    result = fix_source(text_file("; ".join(["f()"] * 12)), lint_for({"f": keyed}, bad=unkeyed))
    assert result.text == "; ".join(["f(k=1)"] * 10 + ["f()"] * 2)


def test_what_cannot_be_built_is_passed_over() -> None:
    def refuse(source: SourceFile, call: ast.Call) -> list[Edit]:
        raise Unfixable("not here")

    def crash(source: SourceFile, call: ast.Call) -> list[Edit]:
        raise KeyError("bug")

    result = fix_source(text_file("f()\ng()\nh()\n"), lint_for({"f": refuse, "g": crash, "h": keyed}, bad=unkeyed))
    assert result.text == "f()\ng()\nh(k=1)\n"
    assert [(failure.code, failure.line) for failure in result.failures] == [("g", 2)]
    assert "KeyError" in result.failures[0].reason


# Verification


def replacing(new: str) -> Repair:
    return lambda source, call: [Edit(*source.span(call), new)]


@pytest.mark.parametrize(
    ("text", "repair", "reason"),
    [
        ("f()\n", replacing("(("), "no valid file"),
        ("f(\n  # why\n)\n", replacing("x"), "comment would be lost"),
        ("x = 1\nf()\n", replacing("y"), "unbound: y"),
        ("x = 1\ndef g():\n    print(x)\n    f()\n", replacing("x = 2"), "x would be bound in another scope"),
        (
            "def g():\n    x = f()\n    return x\n",
            lambda source, call: drop_statement(source, parent(source, call)),
            "x",
        ),
        ("f()\n", replacing("f( )"), "still be there"),
        ("f()\n", replacing("1\nh()"), "a new h would come up on line 3"),
        ("x = 1\nf()\n", replacing("'\\ud800' if x else '''\0'''"), "no valid file"),
    ],
)
def test_a_bad_result_is_thrown_away_and_the_others_kept(text: str, repair: Repair, reason: str) -> None:
    lint = lint_for({"f": repair, "h": repair, "good": keyed}, bad=unkeyed)
    lint_names = "import f, h, good\n"
    result = fix_source(text_file(f"{lint_names}{text}good()\n"), lint)
    assert result.text == f"{lint_names}{text}good(k=1)\n"
    assert [applied.code for applied in result.applied] == ["good"]
    assert [failure.code for failure in result.failures] == ["f"]
    assert reason in result.failures[0].reason


def parent(source: SourceFile, call: ast.Call) -> ast.stmt:
    statements = [node for node in ast.walk(source.parse()) if isinstance(node, ast.stmt)]
    return [node for node in statements if node.lineno == call.lineno][-1]


def test_a_finding_that_moves_is_recognized() -> None:
    def guard(source: SourceFile, call: ast.Call) -> list[Edit]:
        function = next(node for node in ast.walk(source.parse()) if isinstance(node, ast.FunctionDef))
        return [*decorate(source, function, "d"), *keyed(source, call)]

    lint = lint_for({"f": guard, "g": replacing("g()")}, bad=unkeyed)
    result = fix_source(text_file("import d, f, g\ndef h():\n    f(1)\n"), lint)
    assert result.text == "import d, f, g\n@d\ndef h():\n    f(1, k=1)\n"
    assert result.failures == []


def test_a_comment_may_be_edited_as_such() -> None:
    def lint(source: SourceFile) -> list[Found]:
        start = source.text.find("  # torchlint")
        end = source.text.find("\n")
        fix = Fix("", Safety.SAFE, lambda: [Edit(start, end, "")])
        return [Found("X", start, fix)] if start >= 0 else []

    assert fix_source(text_file("x = 1  # torchlint: ignore\n# here\n"), lint).text == "x = 1\n# here\n"


def test_a_notebook_is_fixed_cell_by_cell() -> None:
    first = b'{"cell_type": "code", "source": ["f(1)\\n", "%time f(2)"]}'
    second = b'{"cell_type": "code", "source": "await f(\\"\\u00e9\\");"}'
    data = b'{"cells": [' + first + b", " + second + b"]}"
    source = SourceFile.from_bytes(Path("a.ipynb"), data)
    result = fix_source(source, lint_for({"f": keyed}, bad=unkeyed))
    assert result.failures == []
    assert result.source.encode() == data.replace(b"f(1)", b"f(1, k=1)").replace(b'\\");', b'\\", k=1);')


PIECES = [
    "f(1)",
    "g(f(2), a=3)",
    "x = 'é'; f(x)  # one",
    "def h():\n    '''f(1)'''\n    return f(2)",
    "f(  # two\n    1,\n)",
]


@given(st.lists(st.sampled_from(PIECES), max_size=6), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_fixed_files_keep_everything_else(pieces: list[str], newline: str, bom: bool) -> None:
    text = ("\ufeff" if bom else "") + "\n".join(["f = g = print", *pieces]).replace("\n", newline)
    source = text_file(text)
    lint = lint_for({"f": keyed}, bad=unkeyed)
    result = fix_source(source, lint)
    assert result.failures == []
    assert lint(result.source) == []
    restored = fix_source(
        result.source,
        lint_for({"f": lambda source, call: drop_argument(source, call, "k")}, bad=lambda call: not unkeyed(call)),
    )
    assert restored.source.encode() == text.encode()


@given(
    st.text(max_size=10), st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10), st.text(max_size=2)), max_size=3)
)
def test_edits_that_overlap_are_refused(text: str, places: list[tuple[int, int, str]]) -> None:
    edits = sorted(Edit(*place) for place in places)
    valid = all(edit.start <= edit.end <= len(text) for edit in edits) and all(
        first.end <= second.start for first, second in pairwise(edits)
    )
    if not valid:
        with pytest.raises(ValueError, match="overlaps"):
            spliced(text, sorted(edits))
        return
    expected = text
    for edit in reversed(edits):
        expected = expected[: edit.start] + edit.content + expected[edit.end :]
    assert spliced(text, sorted(edits)) == expected


# Writing


def test_a_write_keeps_mode_bits_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    path.chmod(0o751)
    write_atomically(path, b"new", b"old")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.py"]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "real.py").write_bytes(b"old")
    (tmp_path / "middle.py").symlink_to("folder/real.py")
    link = tmp_path / "link.py"
    link.symlink_to("middle.py")
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert os.readlink(link) == "middle.py"
    assert (folder / "real.py").read_bytes() == b"new"


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"somebody's work")
    with pytest.raises(WriteError, match=r"a\.py: changed on disk"):
        write_atomically(path, b"new", b"old")
    assert path.read_bytes() == b"somebody's work"


def test_a_change_during_the_write_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: path.write_bytes(b"typed just now"))
    with pytest.raises(WriteError, match="changed on disk"):
        write_atomically(path, b"new", b"old")
    assert path.read_bytes() == b"typed just now"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("function", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_at_any_point_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: BaseException
) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")

    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(os, function, fail)
    with pytest.raises((WriteError, KeyboardInterrupt)):
        write_atomically(path, b"new", b"old")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.py"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a process of its own")
@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_crash_leaves_the_old_file(tmp_path: Path, function: str) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    program = (
        "import os, sys; from pathlib import Path; from torchlint.fixing.apply import write_atomically\n"
        f"os.{function} = lambda *a: os._exit(9)\nwrite_atomically(Path(sys.argv[1]), b'new', b'old')"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 9
    assert path.read_bytes() == b"old"


def test_a_read_only_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    path.chmod(0o444)
    # Whoever is root may write everything; the answer of the system is what counts.
    monkeypatch.setattr(os, "access", lambda file, mode: False)
    with pytest.raises(WriteError, match=r"a\.py: the file is read-only"):
        write_atomically(path, b"new", b"old")
    assert path.read_bytes() == b"old"


def test_a_read_only_folder_is_an_error_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    path = tmp_path / "a.py"
    path.write_bytes(b"old")

    def refuse(**options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    with pytest.raises(WriteError, match=r"a\.py: cannot be written: Permission denied"):
        write_atomically(path, b"new", b"old")
    assert path.read_bytes() == b"old"


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="No such file"):
        write_atomically(tmp_path / "a.py", b"new")


def test_nothing_of_apply_knows_a_rule() -> None:
    assert "torchlint.rules" not in Path(apply.__file__).read_text(encoding="utf-8")
