"""`torchlint init`: what it sees of a project, what it writes, and what it leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from plugin_support import TRAIN, environment

from torchlint.config import read_config
from torchlint.toml import parse_toml

PROJECT = """\
# my project
[project]
name = "mine"  # a comment
dependencies = ["torch>=1.13"]

[tool.other]
list = [
  1,   # kept
]
"""


@pytest.fixture
def torchlint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line in a project with two findings."""
    monkeypatch.chdir(tmp_path)
    Path(".git").mkdir()
    Path("train.py").write_text(TRAIN)
    return CommandLine(capsys)


def test_a_table_is_appended_to_pyproject_and_the_rest_stays_byte_for_byte(torchlint: CommandLine) -> None:
    for before in (PROJECT.encode(), PROJECT.rstrip().encode(), PROJECT.replace("\n", "\r\n").encode(), b""):
        Path("pyproject.toml").write_bytes(before)
        run = torchlint("init")
        assert (run.status, run.err) == (0, "")
        assert run.out.endswith(f"Wrote {Path('pyproject.toml').absolute()}.\n")
        after = Path("pyproject.toml").read_bytes()
        assert after.startswith(before)
        assert b"[tool.torchlint]" in after[len(before) :]
        assert (b"\r\n" in before) == (b"\r\n" in after)
        read_config(Path("pyproject.toml"))
        assert torchlint(".").status == 1


def test_without_pyproject_it_is_a_file_of_its_own(torchlint: CommandLine) -> None:
    assert torchlint("init").status == 0
    text = Path("torchlint.toml").read_text()
    assert "[tool" not in text
    assert parse_toml(text) == {"target-torch": "2.0", "fail-on": "warning"}
    assert "#   TL101 sync-in-loop: 1\n#   TL405 zero-grad-keeps-zeros: 1\n" in text


def test_a_configuration_that_is_there_is_not_touched(torchlint: CommandLine) -> None:
    for name, text in (("torchlint.toml", ""), ("pyproject.toml", PROJECT + "[tool.torchlint]\n")):
        Path(name).write_text(text)
        run = torchlint("init")
        assert (run.status, run.out) == (2, "")
        assert f"{Path(name).absolute()}: " in run.err
        assert "already; delete it to start anew" in run.err
        assert Path(name).read_text() == text
        Path(name).unlink()


@pytest.mark.parametrize("text", ["[tool.torchlint\n", "tool = 1\n[tool.x]\n"])
def test_a_broken_pyproject_is_not_touched(torchlint: CommandLine, text: str) -> None:
    Path("pyproject.toml").write_text(text)
    run = torchlint("init")
    assert run.status == 2
    assert "is not valid TOML" in run.err
    assert Path("pyproject.toml").read_text() == text


def test_a_dry_run_shows_the_text_and_writes_nothing(torchlint: CommandLine) -> None:
    Path("pyproject.toml").write_text(PROJECT)
    run = torchlint("init", "--dry-run")
    assert run.status == 0
    shown = run.out.partition("would get:\n\n")[2]
    assert Path("pyproject.toml").read_text() == PROJECT
    torchlint("init")
    assert Path("pyproject.toml").read_text() == PROJECT + "\n" + shown


@pytest.mark.parametrize(
    ("code", "facts"),
    [
        ("import torch\n", ["framework: plain PyTorch", "devices: none named in the code", "several processes: no"]),
        ("import lightning as L\n", ["framework: Lightning (1 file)"]),
        ("from pytorch_lightning import Trainer\n", ["framework: Lightning (1 file)"]),
        ("from accelerate import Accelerator\n", ["framework: Accelerate (1 file)"]),
        ("x = t.to('cuda:0')\ny = t.to('mps')\n", ["devices: cuda (1 file), mps (1 file)"]),
        ("import torch.distributed as d\nd.init_process_group()\n", ["several processes: 1 file"]),
    ],
)
def test_it_sees_framework_and_devices(torchlint: CommandLine, code: str, facts: list[str]) -> None:
    Path("train.py").write_text(code)
    run = torchlint("init")
    for fact in facts:
        assert f"{fact}\n" in run.out
        assert f"# {fact}\n" in Path("torchlint.toml").read_text()


def test_the_torch_version_comes_from_the_requirements(torchlint: CommandLine) -> None:
    Path("pyproject.toml").write_text(PROJECT)
    run = torchlint("init")
    assert f"oldest torch: 1.13 ({Path('pyproject.toml').absolute()}: torch>=1.13)" in run.out
    assert '\n# target-torch = "1.13"\n' in Path("pyproject.toml").read_text()
    assert "target-torch = 1.13" in torchlint("config").out


def test_presets_say_how_many_findings_they_give(torchlint: CommandLine) -> None:
    run = torchlint("init", "--dry-run")
    rows = {line.split()[0]: int(line.split()[1]) for line in run.out.splitlines() if line.startswith("  ")}
    assert set(rows) == {"warnings", "default", "all"}
    assert rows["warnings"] <= rows["default"] == 2 <= rows["all"]


@pytest.mark.parametrize("preset", ["warnings", "default", "all"])
def test_each_preset_gives_the_findings_that_it_promised(torchlint: CommandLine, preset: str) -> None:
    Path("more.py").write_text(
        "import torch\nfrom torch import nn\n\nlayer = nn.Linear(1001, 1003)\nx = torch.zeros(3).cuda()\n"
    )
    run = torchlint("init", "--preset", preset)
    promised = next(int(line.split()[1]) for line in run.out.splitlines() if line.startswith(f"  {preset} "))
    assert promised >= 2
    found = torchlint("--output-format=concise", "-q", ".").out.splitlines()
    assert len(found) == promised


def test_names_of_folders_cannot_break_the_file_or_the_terminal(torchlint: CommandLine) -> None:
    folder = Path("a\x1b[2J\nb")
    folder.mkdir()
    (folder / "requirements.txt").write_text("torch>=2.1\n")
    (folder / "setup.py").write_text("")
    run = torchlint("init", folder)
    assert run.status == 0
    assert "\x1b" not in run.out
    assert parse_toml((folder / "torchlint.toml").read_text())["fail-on"] == "warning"


def test_what_cannot_be_done_is_said(torchlint: CommandLine) -> None:
    assert "no such folder" in torchlint("init", "missing").err
    Path("torchlint.toml").mkdir()
    assert torchlint("init").status == 2


def test_it_asks_on_a_terminal_only(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    master, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "torchlint", "init"],
        cwd=project,
        env=environment(tmp_path),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    while b"Which preset?" not in shown:
        shown += os.read(master, 1 << 12)
    os.write(master, b"nonsense\nall\n")
    assert process.wait(timeout=60) == 0
    os.close(master)
    assert 'select = ["ALL"]' in (project / "torchlint.toml").read_text()
