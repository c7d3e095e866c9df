"""The command line as people use it: verbs, options, exit statuses, and what is left on the disk."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from command_line import CommandLine

import torchlint as package
from torchlint.add_ignore import with_ignores
from torchlint.cli import main
from torchlint.fixing.apply import WriteError
from torchlint.rule import all_rules
from torchlint.source import SourceError, SourceFile

SLOW = "optimizer.zero_grad(set_to_none=False)"
TRAIN = f"""\
import torch


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {SLOW}
"""
LOAD = """\
from torch.utils.data import DataLoader


def f(data):
    for x in DataLoader(data):
        print(len(x))
"""
FIXED = TRAIN.replace("set_to_none=False", "")
CLEAN = "import torch\n\nx = torch.zeros(3)\n"


@pytest.fixture
def torchlint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line, in an empty folder, with no cache outside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHLINT_CACHE_DIR", raising=False)
    return CommandLine(capsys)


def write(name: str, text: str | bytes = TRAIN) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def feed(monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data.encode())))


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# What is found, and how it is shown


def test_check_is_the_default_verb_and_the_current_folder_the_default_path(torchlint: CommandLine) -> None:
    write("pkg/train.py")
    full = torchlint()
    assert full.status == 1
    assert "pkg/train.py:6:5: TL405 [*]" in full.out.replace(os.sep, "/")
    assert f"6 |     {SLOW}\n  |     {'^' * len(SLOW)}" in full.out
    assert full.out.endswith("Found 1 issue (1 fixable with `--fix --unsafe-fixes`) in 1 file.\n")
    assert torchlint("check", ".") == torchlint(".") == full


def test_clean_files_exit_zero(torchlint: CommandLine) -> None:
    write("a.py", CLEAN)
    assert torchlint(".") == (0, "All checks passed in 1 file.\n", "")
    assert torchlint("--quiet", ".") == (0, "", "")


def test_reports_take_their_form_from_options_and_configuration(torchlint: CommandLine) -> None:
    write("train.py")
    assert torchlint("--output-format", "concise", "-q").out.startswith("train.py:6:5: TL405 [*] ")
    (row,) = json.loads(torchlint("--output-format", "json").out)
    assert (row["code"], row["filename"], row["fix"]["applicability"]) == (
        "TL405",
        str(Path("train.py").absolute()),
        "unsafe",
    )
    assert row["fix"]["edits"]
    write("torchlint.toml", "output-format = 'json'\n")
    assert len(json.loads(torchlint().out)) == 1
    assert torchlint("--output-format=concise", "--statistics", "-q").out == "1  TL405  [*] zero-grad-keeps-zeros\n"


def test_a_report_can_go_to_a_file(torchlint: CommandLine) -> None:
    write("train.py")
    run = torchlint("--output-format", "json", "--output-file", "report.json")
    assert (run.status, run.out) == (1, torchlint().out)
    assert json.loads(Path("report.json").read_text())[0]["code"] == "TL405"
    run = torchlint("--output-file", "missing/report.json")
    assert run.status == 2
    assert "missing/report.json: the report cannot be written: No such file or directory" in run.err


def test_levels_and_exit_statuses(torchlint: CommandLine) -> None:
    write("load.py", LOAD)
    assert torchlint("--select", "TL301").status == 0
    assert "TL301" in torchlint("--select", "TL301").out
    assert torchlint("--select", "TL301", "--fail-on", "info").status == 1
    assert torchlint("--select", "TL301", "--fail-on", "info", "--exit-zero").status == 0
    write("torchlint.toml", "fail-on = 'info'\n")
    assert torchlint("--select", "TL301").status == 1


def test_settings_reach_rules(torchlint: CommandLine) -> None:
    write("load.py", LOAD)
    assert "num_workers=7" in torchlint("--select", "TL301", "--dataloader-workers", "7").out
    write("torchlint.toml", "dataloader-workers = 9\n")
    assert "num_workers=9" in torchlint("--select", "TL301").out


def test_the_target_comes_from_the_option_or_the_project(torchlint: CommandLine) -> None:
    write("train.py", TRAIN.replace("set_to_none=False", ""))
    assert torchlint().status == 0
    assert torchlint("--target-torch", "1.13").status == 1
    write("requirements.txt", "torch>=1.12\n")
    assert torchlint().status == 1
    assert torchlint("--target-torch", "2.0").status == 0


def test_notebooks_are_linted_cell_by_cell(torchlint: CommandLine) -> None:
    def cell(kind: str, text: str) -> dict[str, object]:
        code = {"execution_count": None, "outputs": []} if kind == "code" else {}
        return {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True), **code}

    cells = [cell("markdown", "# hi"), cell("code", TRAIN), cell("code", "x = (\n"), cell("code", "%time x\n")]
    write("demo.ipynb", json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    rows = json.loads(torchlint("--output-format", "json").out)
    assert [(row["code"], row["cell"], row["location"]["row"]) for row in rows] == [("TL405", 2, 6), ("TL000", 3, 1)]


# Selection, configuration and exclusion


def test_an_unknown_rule_on_the_command_line_is_wrong_usage(torchlint: CommandLine) -> None:
    write("train.py")
    run = torchlint("--fix", "--unsafe-fixes", "--select", "TL999,sync-in-lop")
    assert (run.status, run.out) == (2, "")
    assert run.err.startswith("error: --select: unknown rule 'TL999'")
    assert "did you mean 'sync-in-loop'?" in torchlint("--select", "sync-in-lop").err
    assert Path("train.py").read_text() == TRAIN


def test_rules_are_selected_and_ignored(torchlint: CommandLine) -> None:
    write("train.py")
    assert torchlint("--select", "TL1,TL2").status == 0
    assert torchlint("--select=ALL", "--ignore=zero-grad-keeps-zeros").status == 0
    assert torchlint("--per-file-ignores", "train.py:TL4").status == 0
    assert torchlint("--per-file-ignores", "other.py:TL4").status == 1
    assert torchlint("--per-file-ignores", "train.py").status == 2


def test_a_broken_configuration_is_said_and_nothing_is_written(torchlint: CommandLine) -> None:
    write("train.py")
    for text, message in [
        ("[tool.torchlint]\nselect = [\n", "is not valid TOML"),
        ("[tool.torchlint]\nselct = []\n", "pyproject.toml:2: unknown key 'selct' (did you mean 'select'?)"),
        ("[tool.torchlint]\nselect = ['TL999']\n", "pyproject.toml: select: unknown rule 'TL999'"),
    ]:
        write("pyproject.toml", text)
        run = torchlint("--fix", "--unsafe-fixes")
        assert run.status == 2
        assert message in run.err
        assert "TL405" in run.out
        assert Path("train.py").read_text() == TRAIN
        assert torchlint("--add-ignore").status == 2
        assert Path("train.py").read_text() == TRAIN
        assert torchlint("--isolated").status == 1


def test_a_named_configuration_counts_for_all_files(torchlint: CommandLine) -> None:
    write("pkg/train.py")
    write("pkg/torchlint.toml", "ignore = ['TL4']\n")
    write("other.toml", "select = ['TL405']\n")
    assert torchlint().status == 0
    assert torchlint("--config", "other.toml").status == 1
    run = torchlint("--config", "missing.toml")
    assert (run.status, run.out) == (2, "")
    assert "missing.toml: cannot be read: No such file or directory" in run.err


def test_show_files_lists_what_would_be_linted(torchlint: CommandLine) -> None:
    write("b.py")
    write("a/c.py")
    write("dist/d.py")
    assert torchlint("--show-files").out.replace(os.sep, "/").splitlines() == ["a/c.py", "b.py"]
    assert torchlint("--show-files", "dist/d.py", "--force-exclude").out == ""


# Bad input


def test_bad_files_cost_a_message_each_and_all_others_are_linted(torchlint: CommandLine) -> None:
    write("train.py")
    write("broken.py", "import torch\ndef f(:\n")
    write("latin.py", b"import torch\nname = '\xe9'\n")
    write("nul.py", b"import torch\n\0\n")
    write("deep.py", "x = " + "(" * 1000 + ")" * 1000)
    write("long.py", "".join(f"x = {n}\n" for n in range(50_000)))
    write("empty.py", "")
    write("feed.py", "\f\n\timport torch\n".replace("\t", ""))
    write("book.ipynb", "{")
    Path("loop").symlink_to(".")
    Path("self.py").symlink_to("self.py")
    before = everything_in(Path())
    run = torchlint("--output-format", "concise", ".", "self.py", "missing.py")
    assert run.status == 2
    found = [line.split(" ")[:2] for line in run.out.splitlines()[:-1] if not line.startswith("deep.py")]
    assert found == [
        ["book.ipynb:1:2:", "TL000"],
        ["broken.py:2:7:", "TL000"],
        ["latin.py:2:9:", "TL000"],
        ["nul.py:2:1:", "TL000"],
        ["train.py:6:5:", "TL405"],
    ]
    assert "missing.py: no such file or folder" in run.err
    assert "self.py: a symbolic link that leads nowhere, or to itself" in run.err
    assert everything_in(Path()) == before


def as_nobody(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command line in a folder as a user whom permission bits bind; its status, and what it said on stderr.

    Root is not bound, and whom it turns into may not reach the interpreter's files: so a forked child changes its user
    after everything has been imported.
    """
    said = folder / "stderr"
    said.touch()
    said.chmod(0o666)
    child = os.fork()
    if child == 0:
        status = 99
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.chdir(folder)
            with said.open("w") as stderr:
                sys.stderr = stderr
                status = main(list(arguments))
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    text = said.read_text()
    said.unlink()
    return os.waitstatus_to_exitcode(ended), text


def test_unreadable_and_read_only_files(torchlint: CommandLine) -> None:
    write("warm_up.py")
    torchlint("--fix", "--unsafe-fixes")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        train, secret = folder / "train.py", folder / "secret.py"
        for path, mode in ((train, 0o444), (secret, 0)):
            path.write_text(TRAIN)
            path.chmod(mode)
        status, said = as_nobody(folder, "--no-cache", "--jobs", "1", "--fix", "--unsafe-fixes")
        assert status == 2
        assert "secret.py: cannot be read: Permission denied" in said
        assert "train.py: the file is read-only" in said
        assert train.read_text() == TRAIN


def test_a_file_that_cannot_be_written_keeps_its_findings(
    torchlint: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *arguments: object, **others: object) -> None:
        raise WriteError(f"{path}: the file is read-only")

    monkeypatch.setattr("torchlint.repair.write_atomically", refuse)
    path = write("train.py")
    run = torchlint("--fix", "--unsafe-fixes")
    assert run.status == 2
    assert "train.py: the file is read-only" in run.err
    assert "TL405" in run.out
    assert path.read_text() == TRAIN


def test_no_files_is_a_warning(torchlint: CommandLine) -> None:
    assert torchlint().err == "warning: no Python files or notebooks found under the given paths\n"


def test_wrong_options_exit_two(torchlint: CommandLine) -> None:
    for arguments in (["--no-such-option"], ["--jobs", "0"], ["--output-format", "xml"], ["--target-torch", "new"]):
        run = torchlint(*arguments)
        assert run.status == 2
        assert run.err


def test_names_are_escaped_before_a_terminal_sees_them(torchlint: CommandLine) -> None:
    write("\x1b[31m[red]\n.py")
    run = torchlint("--output-format", "concise", ".", "\x1bmissing.py")
    assert "\x1b" not in run.out + run.err
    assert run.out.startswith("\\x1b[31m[red]\\x0a.py:6:5: TL405")


def test_an_interrupt_ends_quietly(torchlint: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    write("train.py")
    monkeypatch.setattr("torchlint.runner.Run.reports", interrupt)
    assert torchlint() == (130, "", "")


# Repairing


def test_fix_repairs_what_is_allowed(torchlint: CommandLine) -> None:
    path = write("train.py")
    assert torchlint("--fix").status == 1
    assert path.read_text() == TRAIN
    run = torchlint("--fix", "--unsafe-fixes")
    assert (run.status, run.out) == (0, "Fixed 1 issue; nothing is left in 1 file.\n")
    assert path.read_text() == FIXED
    assert torchlint("--fix", "--unsafe-fixes").out == "All checks passed in 1 file.\n"


def test_exit_non_zero_on_fix_and_fix_only(torchlint: CommandLine) -> None:
    write("train.py", TRAIN + "    optimizer.zero_grad(set_to_none=False, **{})\n")
    write("other.py")
    assert torchlint("--fix", "--unsafe-fixes", "--exit-non-zero-on-fix", "other.py").status == 1
    assert torchlint("--fix", "--unsafe-fixes", "--exit-non-zero-on-fix", "other.py").status == 0
    write("other.py")
    run = torchlint("--fix-only", "--unsafe-fixes")
    assert (run.status, run.out) == (0, "Fixed 3 issues.\n")
    assert Path("other.py").read_text() == FIXED


def test_diff_shows_repairs_and_writes_nothing(torchlint: CommandLine) -> None:
    path = write("train.py")
    run = torchlint("--diff", "--unsafe-fixes")
    assert run.status == 1
    assert run.out.startswith("--- train.py\n+++ train.py\n@@ ")
    assert f"-    {SLOW}\n+    optimizer.zero_grad()\n" in run.out
    assert run.err == "Would fix 1 issue in 1 file.\n"
    assert path.read_text() == TRAIN
    assert torchlint("--diff").status == 0


def test_a_suppression_that_a_repair_leaves_behind_goes_with_it(torchlint: CommandLine) -> None:
    path = write("a.py", CLEAN.replace("\nx", "\n# torchlint: ignore-file[TL203]\nx"))
    assert "TL001" not in torchlint().out.replace("TL001 [*]", "")
    run = torchlint("--fix")
    assert run.status == 0
    assert path.read_text() == CLEAN


def test_standard_input_is_linted_under_its_name(torchlint: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    write("pkg/torchlint.toml", "ignore = ['TL4']\n")
    for arguments, status in [
        (["-"], 1),
        (["--stdin-filename", "new.py"], 1),
        (["-", "--stdin-filename", "pkg/new.py"], 0),
    ]:
        feed(monkeypatch, TRAIN)
        assert torchlint("-q", *arguments).status == status
    assert not Path("new.py").exists()


def test_fixing_standard_input_prints_the_text(torchlint: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, TRAIN)
    run = torchlint("--fix", "--unsafe-fixes", "--stdin-filename", "new.py", "-")
    assert (run.status, run.out) == (0, FIXED)
    assert run.err == "Fixed 1 issue; nothing is left in 1 file.\n"
    feed(monkeypatch, "x = (\n")
    run = torchlint("--fix", "--stdin-filename", "new.py")
    assert (run.status, run.out) == (1, "x = (\n")
    feed(monkeypatch, TRAIN)
    run = torchlint("--fix", "--stdin-filename", "dist/new.py", "--force-exclude")
    assert (run.status, run.out) == (0, TRAIN)


# --add-ignore


def test_add_ignore_silences_every_finding(torchlint: CommandLine) -> None:
    path = write("train.py", TRAIN + f"    {SLOW}  # why\n    {SLOW}  # torchlint: ignore[TL101]: a reason\n")
    run = torchlint("--add-ignore")
    assert (run.status, run.out) == (0, "Silenced 3 issues in 1 file.\n")
    assert path.read_text().splitlines()[5:] == [
        f"    {SLOW}  # torchlint: ignore[TL405]",
        f"    {SLOW}  # why  # torchlint: ignore[TL405]",
        f"    {SLOW}  # torchlint: ignore[TL101, TL405]: a reason",
    ]
    assert "TL405" not in torchlint("--ignore", "TL001").out


@pytest.mark.parametrize(
    ("text", "row", "annotated"),
    [
        ("x = f()\r\n", 1, "x = f()  # torchlint: ignore[TL991]\r\n"),
        ("x = f() + \\\n    1\n", 1, "x = f() + \\\n    1  # torchlint: ignore[TL991]\n"),
        ('x = f("""\ny\n""")', 1, 'x = f("""\ny\n""")  # torchlint: ignore[TL991]'),
        ("with f(\n    a,\n):   \n    pass\n", 1, "with f(  # torchlint: ignore[TL991]\n    a,\n):   \n    pass\n"),
        ("x = f()  # noqa: E501\n", 1, "x = f()  # noqa: E501  # torchlint: ignore[TL991]\n"),
        (
            "x = f()  # torchlint: ignore[TL1, until=2999-01-01]\n",
            1,
            "x = f()  # torchlint: ignore[TL1, TL991, until=2999-01-01]\n",
        ),
    ],
)
def test_an_ignore_comment_stands_where_a_comment_is_legal(text: str, row: int, annotated: str) -> None:
    from test_reports import finding

    source = SourceFile.from_text(Path("a.py"), text)
    assert with_ignores(source, [finding(row=row)]).text == annotated


def test_no_place_for_an_ignore_comment_is_an_error() -> None:
    from test_reports import finding

    source = SourceFile.from_text(Path("a.py"), 'x = f(); y = """\n"""; z = """\n"""; w = """\n"""\n')
    assert with_ignores(source, [finding(row=4)]).text.endswith('"""  # torchlint: ignore[TL991]\n')
    with pytest.raises(SourceError, match="no line of the statement"):
        with_ignores(source, [finding(row=1)])


# The other verbs


def test_rules_lists_every_rule(torchlint: CommandLine) -> None:
    run = torchlint("rules")
    assert run.status == 0
    lines = run.out.splitlines()
    assert [line.split()[0] for line in lines] == ["code", *(rule.code for rule in all_rules())]
    assert next(line for line in lines if line.startswith("TL001")).split()[1:5] == [
        "unused-suppression",
        "info",
        "safe",
        "on",
    ]


@pytest.mark.parametrize("name", ["TL001", "tl001", "unused-suppression", "Unused-Suppression"])
def test_rule_explains_one(torchlint: CommandLine, name: str) -> None:
    run = torchlint("rule", name)
    assert run.status == 0
    assert run.out.startswith("# TL001 unused-suppression\n\n*info · safe fix · on by default · hygiene*\n")
    assert "## Fix safety" in run.out


def test_rule_names_the_nearest_for_a_mistake(torchlint: CommandLine) -> None:
    run = torchlint("rule", "unused-supression")
    assert (run.status, run.out) == (2, "")
    assert "did you mean 'unused-suppression'?" in run.err
    assert torchlint("rule").status == 2


def test_config_shows_what_is_in_force_and_from_where(torchlint: CommandLine) -> None:
    file = write("torchlint.toml", "fail-on = 'info'\nignore = ['TL301']\n").absolute()
    write("requirements.txt", "torch>=1.9\n")
    lines = torchlint("config", ".", "--dataloader-workers", "8").out.splitlines()
    assert f'fail-on = "info"  ({file})' in lines
    assert "dataloader-workers = 8  (command line)" in lines
    assert "respect-gitignore = true  (default)" in lines
    assert f"target-torch = 1.9  ({Path('requirements.txt').absolute()}: torch>=1.9)" in lines
    assert "rules off: TL301" in lines
    assert torchlint("config", "missing").status == 2


def test_help_names_the_verbs(torchlint: CommandLine) -> None:
    run = torchlint("--help")
    assert run.status == 0
    for word in ("torchlint rules", "torchlint config", "--add-ignore", "exit status"):
        assert word in run.out


def test_the_public_interface_is_there() -> None:
    for name in package.__all__:
        assert getattr(package, name)
    with pytest.raises(AttributeError):
        package.missing  # noqa: B018


# What a process imports, and how it ends


def python(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with some more environment variables."""
    command = [sys.executable, *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


def imported(cwd: Path, watched: set[str], *arguments: str) -> list[str]:
    """The lines that a run prints, and then which of the watched modules it imported."""
    script = f"import sys; from torchlint.cli import main; main({list(arguments)})"
    script += f"; print(sorted({watched} & set(sys.modules)))"
    return python("-c", script, cwd=cwd).stdout.splitlines()


def test_a_clean_run_imports_neither_libcst_nor_rich_nor_torch(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CLEAN)
    (tmp_path / "b.py").write_text(TRAIN)
    watched = {"libcst", "rich", "torch", "multiprocessing", "difflib", "pathspec"}
    assert imported(tmp_path, watched, "a.py", "b.py", "-n")[-1] == "[]"


def test_a_report_in_text_imports_no_libcst_and_marks_what_can_be_repaired(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import torch\n\nx = torch.zeros(9).to('cuda')\ny = torch.zeros(9).to(  # the first one\n    'cuda')\n"
    )
    *report, watched = imported(tmp_path, {"libcst"}, "a.py", "-n", "-q", "--output-format", "concise")
    assert [line.split("`")[0] for line in report] == ["a.py:3:5: TL201 [*] ", "a.py:4:5: TL201 "]
    (tmp_path / "a.py").write_text("import torch\n\nx = torch.zeros(9).to('cuda')\n")
    assert imported(tmp_path, {"libcst"}, "a.py", "-n", "-q", "--output-format", "concise")[-1] == "[]"
    assert watched == "['libcst']"


def test_the_version_imports_nothing(tmp_path: Path) -> None:
    watched = {"argparse", "msgspec", "dataclasses", "rich"}
    assert imported(tmp_path, watched, "--version") == [f"torchlint {package.__version__}", "[]"]


def test_it_runs_as_a_module_with_any_hash_seed_and_number_of_processes(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.py").write_text(TRAIN)
    outputs = {
        python("-m", "torchlint", "-n", "-j", str(jobs), cwd=tmp_path, PYTHONHASHSEED=str(jobs)).stdout
        for jobs in (1, 2, 4)
    }
    assert len(outputs) == 1
    assert "Found 6 issues" in outputs.pop()


@pytest.mark.skipif(sys.platform == "win32", reason="no such pipes")
def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n" + f"{SLOW}\n".replace("optimizer", "torch.optim.SGD([])") * 3000)
    command = f"{sys.executable} -m torchlint -n a.py | head -1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""


def test_main_reads_the_arguments_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["torchlint", "--version"])
    assert main() == 0
    assert capsys.readouterr().out == f"torchlint {package.__version__}\n"


def test_a_long_elif_chain_is_judged_to_its_end(torchlint: CommandLine) -> None:
    chain = "".join(f"elif n == {i}:\n    x = {i}\n" for i in range(1, 1000))
    write("long.py", f"import torch\nn = 3\nif n == 0:\n    x = 0\n{chain}else:\n    x = torch.zeros(3).cuda()\n")
    run = torchlint("--no-cache", "--select", "TL201", "--output-format", "concise")
    assert "long.py:2004:9: TL201" in run.out


def test_a_report_does_not_take_the_place_of_a_file_that_is_linted(torchlint: CommandLine) -> None:
    path = write("train.py")
    done = torchlint("--output-file", path, path)
    assert done.status == 2
    assert "train.py: is a file to lint" in done.err
    assert path.read_text(encoding="utf-8") == TRAIN


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_report_that_does_not_fit_on_the_disk_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    command = [sys.executable, "-m", "torchlint", "--no-cache", "--isolated", "train.py"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the report cannot be written")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="names of other systems are text")
def test_a_file_whose_name_is_no_text_has_the_same_findings(tmp_path: Path) -> None:
    text = (
        "import torch\ndef train(model: torch.nn.Module, loader, opt, device):\n    for x in loader:\n"
        "        loss = model(x.to(device)).sum()\n        loss.backward()\n        print(loss.item())\n"
    )
    for name in (b"plain.py", b"odd\xff.py"):
        with open(os.path.join(os.fsencode(tmp_path), name), "w") as file:
            file.write(text)
    command = [sys.executable, "-m", "torchlint", "--no-cache", "--isolated", "--output-format", "concise", "."]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path)
    assert done.stdout.count(b"TL101") == 2
