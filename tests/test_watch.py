"""`--watch`, as a process of its own, in a folder whose files really change."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from plugin_support import SEEDED, TRAIN, environment, rule_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLEAN = "import torch\n\nx = torch.zeros(3)\n"
READY = "Watching for changes; Ctrl-C ends."
PATIENCE = 30  # seconds


class Watch:
    """A watching torchlint; its output is read line by line as it comes."""

    def __init__(self, folder: Path, *options: str, terminal: bool = False) -> None:
        command = [sys.executable, "-u", "-m", "torchlint", "--watch", "--output-format=concise", *options]
        env = environment(folder.parent)
        self._reader, writer = os.openpty() if terminal else os.pipe()
        self.process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.STDOUT
        )
        os.close(writer)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with open(self._reader, encoding="utf-8", errors="replace") as stream:
            try:
                for line in stream:
                    self._lines.put(line.rstrip("\n"))
            except OSError:
                return  # what a terminal says when its last program has ended

    def until_ready(self) -> str:
        """Everything that is said until torchlint waits for changes again."""
        return self.until(READY)

    def until(self, wanted: str) -> str:
        lines = []
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                lines.append(self._lines.get(timeout=deadline - time.monotonic()))
            except queue.Empty:
                break
            if wanted in lines[-1]:
                return "\n".join(lines)
        raise AssertionError(f"waited {PATIENCE} s for {wanted!r} in vain; there was {lines}")

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=PATIENCE)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "clean.py").write_text(CLEAN)
    return folder


@pytest.fixture
def watch(project: Path) -> Iterator[Watch]:
    watch = Watch(project)
    yield watch
    watch.close()


def test_it_lints_at_once_and_again_after_a_change_and_ctrl_c_ends_it(project: Path, watch: Watch) -> None:
    first = watch.until_ready()
    assert "train.py:9:23: TL101" in first
    assert "Found 2 issues" in first
    (project / "train.py").write_text(TRAIN.replace("set_to_none=False", ""))
    second = watch.until_ready()
    assert "changed: train.py" in second
    assert "Found 1 issue in 2 files." in second
    (project / "clean.py").write_text(TRAIN)
    third = watch.until_ready()
    assert "changed: clean.py" in third
    assert "Found 3 issues" in third
    assert watch.interrupt() == 130


def test_half_written_and_deleted_files_are_survived(project: Path, watch: Watch) -> None:
    watch.until_ready()
    (project / "train.py").write_text(TRAIN[: TRAIN.index("loss.backward(") + 14])
    assert "train.py:8:22: TL000" in watch.until_ready()
    (project / "train.py").write_bytes(b"\xff\xfe\x00")
    assert "TL000" in watch.until_ready()
    (project / "train.py").unlink()
    assert "All checks passed in 1 file." in watch.until_ready()
    (project / "train.py").write_text(TRAIN)
    assert "Found 2 issues" in watch.until_ready()
    assert watch.process.poll() is None


def test_a_file_that_an_editor_replaces_and_one_in_a_new_folder_are_seen(project: Path, watch: Watch) -> None:
    watch.until_ready()
    (project / ".train.py.tmp").write_text(CLEAN)
    os.replace(project / ".train.py.tmp", project / "train.py")
    assert "All checks passed" in watch.until_ready()
    (project / "deep" / "er").mkdir(parents=True)
    time.sleep(0.3)  # let the new folder be noticed before its file
    (project / "deep" / "er" / "new.py").write_text(TRAIN)
    assert "Found 2 issues" in watch.until("Found 2 issues")


def test_changed_settings_count_and_broken_ones_are_survived(project: Path, watch: Watch) -> None:
    watch.until_ready()
    (project / "torchlint.toml").write_text("ignore = ['TL101']\n")
    assert "Found 1 issue " in watch.until_ready()
    (project / "torchlint.toml").write_text("ignore = 'TL101'\n")
    assert "error: " in watch.until_ready()
    (project / "torchlint.toml").unlink()
    assert "Found 2 issues" in watch.until_ready()


def test_what_cannot_matter_starts_nothing(project: Path, watch: Watch) -> None:
    watch.until_ready()
    (project / "notes.txt").write_text("x")
    (project / ".venv").mkdir()
    (project / ".venv" / "bad.py").write_text(TRAIN)
    (project / "clean.py").write_text(TRAIN)
    again = watch.until_ready()
    assert "changed: clean.py" in again
    assert "Found 4 issues" in again


def test_a_single_file_is_linted_and_its_project_watched(project: Path) -> None:
    watch = Watch(project, "train.py", "--no-cache")
    try:
        assert "Found 2 issues" in watch.until_ready()
        (project / "train.py").unlink()
        assert "train.py: no such file or folder" in watch.until_ready()
        (project / "train.py").write_text(CLEAN)
        assert "All checks passed in 1 file." in watch.until_ready()
        assert not (project / ".torchlint_cache").exists()
    finally:
        watch.close()


def test_an_edited_plugin_counts_at_once(project: Path) -> None:
    (project / "torchlint.toml").write_text("plugins = ['./lint_rules.py']\n")
    (project / "lint_rules.py").write_text(rule_text())
    (project / "train.py").write_text(SEEDED)
    watch = Watch(project, "--allow-plugins")
    try:
        assert "ACME001 seed it elsewhere" in watch.until_ready()
        (project / "lint_rules.py").write_text(rule_text(message="seed it somewhere"))
        assert "ACME001 seed it somewhere" in watch.until_ready()
    finally:
        watch.close()


def test_a_terminal_is_cleared_before_each_report(project: Path) -> None:
    watch = Watch(project, terminal=True)
    try:
        assert watch.until_ready().startswith("\x1b[H\x1b[2J")
        (project / "train.py").write_text(CLEAN)
        assert "\x1b[H\x1b[2J" in watch.until_ready()
    finally:
        watch.close()


def test_names_of_changed_files_are_never_commands_to_the_terminal(project: Path, watch: Watch) -> None:
    watch.until_ready()
    (project / "a\x1b[2Jb.py").write_text(CLEAN)
    assert "changed: a\\x1b[2Jb.py" in watch.until_ready()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-",), "--watch does not go with standard input"),
        (("--add-ignore",), "--watch does not go with --add-ignore"),
        (("missing.py",), "missing.py: no such file or folder"),
        (("--select", "TL999"), "unknown rule 'TL999'"),
    ],
)
def test_what_cannot_be_watched_is_wrong_usage(project: Path, options: tuple[str, ...], message: str) -> None:
    watch = Watch(project, *options)
    try:
        assert message in watch.until(message)
        assert watch.process.wait(timeout=PATIENCE) == 2
    finally:
        watch.close()
