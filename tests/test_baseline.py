"""`--baseline` and `--write-baseline`: what is known is silent, what is new fails, what is stale is told and pruned."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import CommandLine

from torchlint.baseline import Entry, _encode

MOVE = 'x = torch.zeros(3).to("cuda")\n'
OTHER = 'y = torch.ones(4).to("cuda")\n'
CODE = f"import torch\n\n{MOVE}"


@pytest.fixture
def torchlint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line, in a folder with one finding."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text(CODE)
    return CommandLine(capsys)


def entries(path: str = "known.json") -> list[tuple[str, str, str, int]]:
    rows = json.loads(Path(path).read_text())["findings"]
    return [(row["path"], row["code"], row["line"], row["count"]) for row in rows]


def write(torchlint: CommandLine) -> None:
    assert torchlint("--baseline", "known.json", "--write-baseline").status == 0


def check(torchlint: CommandLine, *arguments: str) -> tuple[int, list[int]]:
    """The status, and the rows of what is found."""
    run = torchlint("--baseline", "known.json", "--output-format", "json", *arguments)
    return run.status, [row["location"]["row"] for row in json.loads(run.out)]


def test_known_findings_are_silent_and_new_ones_fail(torchlint: CommandLine) -> None:
    run = torchlint("--baseline", "known.json", "--write-baseline")
    assert run == (0, "known.json holds 1 issue now.\n", "")
    run = torchlint("--baseline", "known.json")
    assert run == (0, "All checks passed in 1 file.\n1 issue in the baseline.\n", "")
    Path("a.py").write_text(CODE + OTHER)
    run = torchlint("--baseline", "known.json", "--output-format", "concise")
    assert run.status == 1
    assert run.out.startswith("a.py:4:5: TL201")
    assert "Found 1 issue" in run.out
    assert torchlint().out.count("TL201") == 2


def test_edits_elsewhere_do_not_revive_what_is_known(torchlint: CommandLine) -> None:
    write(torchlint)
    Path("a.py").write_text(f"import os\nimport torch\n\n\nif os:\n    x   = {MOVE[4:]}")
    assert check(torchlint) == (0, [])
    Path("a.py").write_text(CODE.replace("zeros(3)", "zeros(5)"))
    assert check(torchlint) == (1, [3])


def test_a_second_finding_on_an_equal_line_is_new(torchlint: CommandLine) -> None:
    Path("a.py").write_text(CODE + MOVE)
    write(torchlint)
    assert entries() == [("a.py", "TL201", MOVE.strip(), 2)]
    assert check(torchlint) == (0, [])
    Path("a.py").write_text(CODE + MOVE * 2)
    assert check(torchlint) == (1, [5])


def test_a_copy_in_another_file_is_new(torchlint: CommandLine) -> None:
    write(torchlint)
    Path("b.py").write_text(CODE)
    assert check(torchlint) == (1, [3])


def test_stale_entries_are_told_and_pruned(torchlint: CommandLine) -> None:
    Path("b.py").write_text(CODE)
    Path("c.py").write_text(CODE + OTHER)
    write(torchlint)
    Path("b.py").unlink()
    Path("c.py").write_text(CODE)
    run = torchlint("--baseline", "known.json")
    assert run.status == 0
    assert run.err.splitlines() == [
        "warning: known.json: 2 stale entries, which --write-baseline drops:",
        f"  b.py: TL201: {MOVE.strip()}",
        f"  c.py: TL201: {OTHER.strip()}",
    ]
    assert torchlint("--baseline", "known.json", "-q").err == ""
    write(torchlint)
    assert [entry[0] for entry in entries()] == ["a.py", "c.py"]
    assert torchlint("--baseline", "known.json").err == ""


def test_a_partly_stale_entry_keeps_the_rest_of_its_count(torchlint: CommandLine) -> None:
    Path("a.py").write_text(CODE + MOVE * 2)
    write(torchlint)
    Path("a.py").write_text(CODE)
    assert "1 stale entry," in torchlint("--baseline", "known.json").err
    write(torchlint)
    assert entries() == [("a.py", "TL201", MOVE.strip(), 1)]


def test_what_was_not_judged_stays(torchlint: CommandLine) -> None:
    Path("b.py").write_text(CODE)
    write(torchlint)
    before = Path("known.json").read_bytes()
    Path("a.py").write_text("import torch\n")
    for arguments in (["b.py"], ["--ignore", "TL201"]):
        assert torchlint("--baseline", "known.json", *arguments).err == ""
        assert torchlint("--baseline", "known.json", "--write-baseline", *arguments).status == 0
        assert Path("known.json").read_bytes() == before


def test_entries_of_a_rule_that_is_gone_are_stale(torchlint: CommandLine) -> None:
    Path("known.json").write_text(
        _encode([Entry("elsewhere.py", "TL888", "x", 1), Entry("a.py", "TL201", MOVE.strip())])
    )
    assert "  elsewhere.py: TL888: x" in torchlint("--baseline", "known.json").err


def test_a_file_that_went_wrong_keeps_its_entries(torchlint: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    write(torchlint)

    def fail(*arguments: object) -> object:
        raise ValueError("a bug")

    monkeypatch.setattr("torchlint.rules.copies.tl201_create_then_move.CreateThenMove.check", fail)
    run = torchlint("--baseline", "known.json", "--write-baseline", "-n")
    assert run.status == 2
    assert entries() == [("a.py", "TL201", MOVE.strip(), 1)]


def test_paths_start_at_the_folder_of_the_baseline(torchlint: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("src").mkdir()
    Path("src/b c.py").write_text(CODE)
    write(torchlint)
    assert [entry[0] for entry in entries()] == ["a.py", "src/b c.py"]
    monkeypatch.chdir("src")
    assert torchlint("--baseline", "../known.json", ".", "../a.py").status == 0
    assert torchlint("--baseline", "../known.json").status == 0


def test_the_file_is_sorted_and_the_same_however_it_came_about(torchlint: CommandLine) -> None:
    for name in ("b.py", "Ä.py", "a/z.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(CODE + OTHER)
    write(torchlint)
    whole = Path("known.json").read_bytes()
    lines = whole.decode().splitlines()
    assert lines[:2] == ["{", '  "torchlint-baseline": 1,']
    assert lines[3] == ('    {"path":"a.py","code":"TL201","line":"x = torch.zeros(3).to(\\"cuda\\")","count":1},')
    assert len(lines) == 5 + len(entries())
    assert entries() == sorted(entries())
    Path("known.json").unlink()
    for name in ("Ä.py", "b.py", "a", "a.py"):
        assert torchlint("--baseline", "known.json", "--write-baseline", name).status == 0
    assert Path("known.json").read_bytes() == whole


def test_notebooks_and_odd_names_are_known_too(torchlint: CommandLine) -> None:
    cell: dict[str, object] = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": CODE,
    }
    cells = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    Path("n.ipynb").write_text(json.dumps(cells))
    names = ["n.ipynb", "\x1b[31m\n::error::.py", "[red]\"'<b>.py", os.fsdecode(b"\xff.py")]
    for name in names[1:]:
        Path(name).write_text(CODE)
    write(torchlint)
    assert len(entries()) == 1 + len(names)
    assert check(torchlint) == (0, [])
    for name in names:
        Path(name).unlink()
    run = torchlint("--baseline", "known.json")
    assert "4 stale entries" in run.err
    assert "\x1b" not in run.err
    assert len(run.err.splitlines()) == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "the baseline is broken: "),
        ("[]", "the baseline is broken: "),
        ("<<<<<<< HEAD\n{}", "the baseline is broken: "),
        ("\xff", "the baseline is broken: "),
        ('{"torchlint-baseline": 1, "findings": [{"path": "a.py"}]}', "`code`"),
        ('{"torchlint-baseline": 1, "findings": [{"path":"a","code":"b","line":"c","count":0}]}', "below 1"),
        ('{"torchlint-baseline": 2, "rows": {}}', "is from a newer torchlint (its format is 2, this one knows 1)"),
    ],
)
def test_a_baseline_that_cannot_be_used_ends_the_run(torchlint: CommandLine, text: str, words: str) -> None:
    Path("known.json").write_bytes(text.encode("latin-1"))
    for more in ([], ["--write-baseline"]):
        run = torchlint("--baseline", "known.json", *more)
        assert (run.status, run.out) == (2, "")
        (line,) = run.err.splitlines()
        assert line.startswith("error: known.json: ")
        assert words in line
        assert Path("known.json").read_bytes() == text.encode("latin-1")


def test_a_missing_or_unwritable_baseline_is_one_clear_line(torchlint: CommandLine) -> None:
    run = torchlint("--baseline", "none.json")
    assert run == (2, "", "error: none.json: there is no such baseline: add --write-baseline to make it\n")
    run = torchlint("--baseline", "no/known.json", "--write-baseline")
    line = "error: no/known.json: the baseline cannot be written: No such file or directory\n"
    assert (run.status, run.err) == (2, line)
    assert torchlint("--baseline", ".git", "--write-baseline").err.startswith(
        "error: .git: the baseline cannot be read"
    )


@pytest.mark.parametrize("more", [(), ("--baseline", "b", "--diff"), ("--baseline", "b", "-o", "f")])
def test_write_baseline_is_refused_where_it_makes_no_sense(torchlint: CommandLine, more: tuple[str, ...]) -> None:
    run = torchlint("--write-baseline", *more)
    assert run.status == 2
    assert "--write-baseline" in run.err.splitlines()[-1]
    assert not Path("b").exists()


def test_a_baseline_goes_with_fixes_and_files(torchlint: CommandLine) -> None:
    write(torchlint)
    Path("a.py").write_text(CODE + OTHER)
    run = torchlint("--baseline", "known.json", "--output-format", "gitlab", "-o", "out.json")
    assert run.status == 1
    assert len(json.loads(Path("out.json").read_text())) == 1
    run = torchlint("--baseline", "known.json", "--fix")
    assert run.status == 0
    assert "1 stale entry" in run.err
