"""`--changed-since`: only findings on changed lines, in real repositories."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine

from torchlint.changes import _parsed

MOVE = 'x = torch.zeros(3).to("cuda")\n'
# What is inserted differs from the lines around it, so that a diff can say only one thing.
NEW = 'n = torch.empty(7).to("cuda")\n'
CODE = f"import torch\n\n{MOVE}\n\n{MOVE}"


def git(*arguments: str, cwd: str = ".") -> str:
    identity = (
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "protocol.file.allow=always",
    )
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=cwd, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def commit(message: str = "more") -> None:
    git("add", "--all")
    git("commit", "--quiet", "--allow-empty", "--message", message)


@pytest.fixture
def torchlint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line, in a repository with one commit on `main`: two findings in a.py."""
    home, folder = tmp_path / "home", tmp_path / "repository"
    home.mkdir()
    folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TORCHLINT_CACHE_DIR", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(folder)
    git("init", "--quiet", "--initial-branch=main")
    Path("a.py").write_text(CODE)
    commit()
    return CommandLine(capsys)


def found(torchlint: CommandLine, revision: str = "main", *arguments: str) -> list[tuple[str, int]]:
    """The name and row of each finding on changed lines."""
    run = torchlint("--changed-since", revision, "--output-format", "json", *arguments)
    assert run.err == ""
    rows = json.loads(run.out)
    assert run.status == int(bool(rows))
    return [(os.path.basename(row["filename"]), row["location"]["row"]) for row in rows]


def insert(line: str, before: int, path: str = "a.py") -> None:
    lines = Path(path).read_text().splitlines(keepends=True)
    Path(path).write_text("".join([*lines[: before - 1], line, *lines[before - 1 :]]))


def test_without_changes_nothing_is_reported(torchlint: CommandLine) -> None:
    assert found(torchlint) == []
    assert torchlint().status == 1


def test_committed_staged_unstaged_and_untracked_lines_count(torchlint: CommandLine) -> None:
    git("switch", "--quiet", "--create", "work")
    insert(NEW, 3)
    commit()
    assert found(torchlint) == [("a.py", 3)]
    insert(NEW.replace("7", "8"), 5)
    git("add", "a.py")
    assert found(torchlint) == [("a.py", 3), ("a.py", 5)]
    insert(NEW.replace("7", "9"), 8)
    Path("new.py").write_text(CODE)
    assert found(torchlint) == [("a.py", 3), ("a.py", 5), ("a.py", 8), ("new.py", 3), ("new.py", 6)]
    assert found(torchlint, "HEAD") == [("a.py", 5), ("a.py", 8), ("new.py", 3), ("new.py", 6)]


def test_what_the_other_branch_changed_since_does_not_count(torchlint: CommandLine) -> None:
    git("switch", "--quiet", "--create", "work")
    insert(NEW, 3)
    commit()
    git("switch", "--quiet", "main")
    Path("a.py").write_text(CODE.replace("zeros", "ones"))
    commit()
    git("switch", "--quiet", "work")
    assert found(torchlint) == [("a.py", 3)]


def test_a_deletion_changes_no_line_that_is_left(torchlint: CommandLine) -> None:
    Path("a.py").write_text(CODE.replace("\n\n\n", "\n"))
    assert found(torchlint) == []
    Path("b.py").write_text("import torch\n")
    Path("a.py").unlink()
    assert found(torchlint) == []


def test_a_renamed_file_keeps_its_old_lines(torchlint: CommandLine) -> None:
    git("mv", "a.py", "b.py")
    assert found(torchlint) == []
    insert(NEW, 3, "b.py")
    assert found(torchlint) == [("b.py", 3)]


def test_a_finding_over_several_lines_counts_if_one_of_them_changed(torchlint: CommandLine) -> None:
    text = 'import torch\nx = torch.zeros(\n    3,\n    4,\n).to("cuda")\n'
    Path("a.py").write_text(text)
    commit()
    Path("a.py").write_text(text.replace("4", "5"))
    assert found(torchlint, "HEAD") == [("a.py", 2)]


ODD = (
    "a b.py",
    "tab\t.py",
    "quote\"'.py",
    "back\\slash.py",
    "new\nline.py",
    "näme 日本.py",
    "\x1b[31m[red]::error::.py",
    "+++ b.py",
    os.fsdecode(b"\xff\xfe.py"),
)


@pytest.mark.parametrize("name", ODD)
def test_names_are_read_whatever_they_hold(torchlint: CommandLine, name: str) -> None:
    Path("pkg").mkdir()
    path = f"pkg/{name}"
    Path(path).write_text(CODE)
    commit()
    assert found(torchlint, "HEAD") == []
    insert(NEW, 3, path)
    rows = found(torchlint, "HEAD", "--select", "TL201")
    assert [row for _, row in rows] == [3]
    Path(f"pkg/untracked {name}").write_text(CODE)
    assert len(found(torchlint, "HEAD", "--select", "TL201")) == 3


def test_the_users_configuration_of_git_changes_nothing(torchlint: CommandLine) -> None:
    for setting in (
        ("core.quotePath", "false"), ("diff.noprefix", "true"), ("diff.mnemonicPrefix", "true"), ("color.ui", "always"),
        ("diff.external", "false"), ("diff.context", "9"), ("diff.interHunkContext", "9"), ("diff.relative", "true"),
        ("diff.renames", "false"), ("diff.submodule", "log"), ("diff.wordRegex", "."), ("diff.colorMoved", "zebra"),
    ):  # fmt: skip
        git("config", *setting)
    Path("sub").mkdir()
    Path("sub/é.py").write_text(CODE)
    commit()
    insert("y = 1\n", 3)
    insert(NEW, 4)
    insert(NEW, 3, "sub/é.py")
    assert found(torchlint, "HEAD") == [("a.py", 4), ("é.py", 3)]
    os.chdir("sub")
    assert found(torchlint, "HEAD", "..") == [("a.py", 4), ("é.py", 3)]


def test_lines_that_look_like_headers_are_content(torchlint: CommandLine) -> None:
    text = f'import torch\n\nT = """\n++ b/other.py\n@@ -1 +1,9 @@\ndiff --git a/a.py b/a.py\n"""\n{MOVE}'
    Path("a.py").write_text(text)
    commit()
    Path("a.py").write_text(text.replace('"""\n', '"""\n-- a/x\n++ b/y\n@@ -1 +1,99 @@\n', 1))
    assert found(torchlint, "HEAD") == []
    diff = b"--- a/a\n+++ b/a\n@@ -3,2 +3 @@\n--- a/b\n--x\n+++ b/b\n@@ -9 +8,2 @@\n-@@ -1 +1 @@\n+@@ -1 +1 @@\n+x\n"
    assert _parsed(diff) == {b"a": [range(3, 4), range(8, 10)]}


def test_attributes_that_hide_text_from_a_diff_hide_nothing(torchlint: CommandLine) -> None:
    Path(".gitattributes").write_text("*.py binary\n")
    commit()
    insert(NEW, 3)
    assert found(torchlint, "HEAD") == [("a.py", 3)]


def notebook(*lines: str) -> str:
    cells: list[dict[str, object]] = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": text.splitlines(True)}
        for text in ("import torch\n", "".join(lines))
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def test_the_changed_lines_of_a_notebook_are_those_of_its_cells(torchlint: CommandLine) -> None:
    other = MOVE.replace("x", "y")
    Path("n.ipynb").write_text(notebook(MOVE, "z = 1\n"))
    commit()
    Path("n.ipynb").write_text(notebook(MOVE, "z = 1\n", other))
    assert found(torchlint, "HEAD") == [("n.ipynb", 3)]


def test_lone_carriage_returns_cost_no_finding(torchlint: CommandLine) -> None:
    Path("a.py").write_bytes(CODE.replace("\n", "\r").encode())
    commit()
    assert found(torchlint, "HEAD") == []
    Path("a.py").write_bytes((CODE + MOVE).replace("\n", "\r").encode())
    assert len(found(torchlint, "HEAD")) == 3


def test_facts_come_from_the_whole_project(torchlint: CommandLine) -> None:
    """The changed function is hot because an unchanged file calls it in its step loop."""
    train = """\
import torch
from helper import total


def train(model, loader, optimizer, criterion):
    for images, labels in loader:
        loss = criterion(model(images), labels)
        loss.backward()
        {}
        optimizer.step()
"""
    helper = 'import torch\n\n\ndef total():\n    value = torch.zeros((), device="cuda")\n    return value\n'
    Path("train.py").write_text(train.format("total()"))
    Path("helper.py").write_text(helper)
    commit()
    Path("helper.py").write_text(helper.replace("return value", "return value.item()"))
    assert found(torchlint, "HEAD") == [("helper.py", 6)]
    Path("train.py").write_text(train.format("pass"))
    assert found(torchlint, "HEAD") == []


def test_it_goes_with_a_baseline_and_with_files(torchlint: CommandLine) -> None:
    insert(NEW, 3)
    run = torchlint("--changed-since", "main", "--output-format", "gitlab", "-o", "out.json")
    assert run.status == 1
    assert len(json.loads(Path("out.json").read_text())) == 1
    Path("out.json").unlink()
    assert torchlint("--baseline", "known.json", "--write-baseline").status == 0
    assert torchlint("--baseline", "known.json", "--changed-since", "main").status == 0


def test_an_unknown_revision_is_one_clear_line(torchlint: CommandLine) -> None:
    for revision in ("nowhere", "--all", "\x1b[31m", "main..HEAD", "", "HEAD:a.py"):
        run = torchlint(f"--changed-since={revision}")
        assert (run.status, run.out) == (2, "")
        (line,) = run.err.splitlines()
        assert line.startswith("error: --changed-since: ")
        assert "git knows no revision" in line
        assert "\x1b" not in line


def test_a_folder_without_a_repository_is_one_clear_line(
    torchlint: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "a.py").write_text(CODE)
    monkeypatch.chdir(plain)
    run = torchlint("--changed-since", "main")
    assert (run.status, run.out) == (2, "")
    (line,) = run.err.splitlines()
    assert line.startswith(f"error: --changed-since: {plain}: git says: not a git repository")


def test_no_common_history_is_one_clear_line(torchlint: CommandLine) -> None:
    git("switch", "--quiet", "--orphan", "other")
    commit()
    run = torchlint("--changed-since", "main")
    assert run.status == 2
    (line,) = run.err.splitlines()
    assert "have no commit in common" in line


def test_a_machine_without_git_is_one_clear_line(torchlint: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    run = torchlint("--changed-since", "main")
    assert (run.status, run.err) == (2, "error: --changed-since: git cannot be run: No such file or directory\n")


@pytest.mark.parametrize("more", [("--fix",), ("--diff",), ("--fix-only",), ("-",), ("--stdin-filename", "a.py")])
def test_it_only_reports_and_only_on_files(torchlint: CommandLine, more: tuple[str, ...]) -> None:
    run = torchlint("--changed-since", "main", *more)
    assert run.status == 2
    assert "--changed-since" in run.err.splitlines()[-1]
    assert Path("a.py").read_text() == CODE
