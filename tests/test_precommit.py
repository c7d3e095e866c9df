"""The pre-commit hooks, run by pre-commit itself in a repository that uses them, and many runs on the same files."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from checkout import CHECKOUT, copy_checkout

from torchlint.fixing.apply import WriteError, write_atomically

SLOW = "import torch\n\n\ndef weights(device):\n    return torch.ones(3).to(device)\n"
FAST = SLOW.replace("torch.ones(3).to(device)", "torch.ones(3, device=device)")
UNFIXABLE = "import torch\n\nlayer = torch.nn.Linear(1001, 64)\n"
CLEAN = "import torch\n\nx = torch.ones(3)\n"


def notebook(source: str) -> str:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
    }
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, indent=1) + "\n"


@dataclass(frozen=True)
class Git:
    """A repository in a folder, with an identity and settings of its own."""

    folder: Path

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.strip()

    def commit(self) -> str:
        """Commit all files, hooks aside; the new revision."""
        self("add", "--all")
        self("commit", "--quiet", "--no-verify", "--allow-empty", "--message", "all")
        return self("rev-parse", "HEAD")


def environment(**more: str) -> dict[str, str]:
    """This process's environment, without what another git or pre-commit around it may have set."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "PRE_COMMIT", "TORCHLINT_"))}
    who = {f"GIT_{role}_{part}": "test@example.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    return {**kept, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **more}


def git_repository(folder: Path) -> Git:
    folder.mkdir(parents=True, exist_ok=True)
    git = Git(folder)
    git("init", "--quiet")
    return git


@dataclass(frozen=True)
class Hooks:
    """Where the hooks come from: a repository that holds this checkout as it is now, uncommitted work included."""

    source: Path
    revision: str
    cache: Path

    def install_in(self, folder: Path, *hooks: str) -> Project:
        """A repository that uses the hooks, each given as YAML from its id on."""
        project = Project(git_repository(folder), self.cache)
        listed = "".join(f"      - {hook}\n" for hook in hooks)
        project.write(
            ".pre-commit-config.yaml",
            f"repos:\n  - repo: {json.dumps(str(self.source))}\n    rev: {self.revision}\n    hooks:\n{listed}",
        )
        return project


@dataclass(frozen=True)
class Project:
    """A repository that uses the hooks."""

    git: Git
    cache: Path

    def write(self, name: str, text: str) -> Path:
        path = self.git.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        return path

    def read(self, name: str) -> str:
        return (self.git.folder / name).read_text(encoding="utf-8")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`pre-commit run` on what is staged, or as the arguments say."""
        self.git("add", "--all")
        return pre_commit(self.git.folder, self.cache, "run", "--color=never", *arguments)


def pre_commit(folder: Path, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", *arguments],
        cwd=folder,
        env=environment(PRE_COMMIT_HOME=str(cache)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Hooks:
    """The hooks, installed by pre-commit into its own environment, once for all of pytest's processes."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    source = shared / "torchlint source"
    if not source.exists():
        made = copy_checkout(own / "made")
        git_repository(made).commit()
        # Of several processes one puts its copy into place; the others find a folder there that is not empty.
        with contextlib.suppress(OSError):
            made.rename(source)
    hooks = Hooks(source, Git(source)("rev-parse", "HEAD"), shared / "pre-commit home")
    project = hooks.install_in(own / "first", "id: torchlint", "id: torchlint-fix")
    installed = pre_commit(project.git.folder, hooks.cache, "install", "--install-hooks")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    return hooks


def test_the_manifest_is_valid(tmp_path: Path) -> None:
    done = pre_commit(CHECKOUT, tmp_path, "validate-manifest", ".pre-commit-hooks.yaml")
    assert (done.returncode, done.stdout) == (0, ""), done.stdout


def test_the_check_reports_scripts_and_notebooks_and_writes_nothing(hooks: Hooks, tmp_path: Path) -> None:
    project = hooks.install_in(tmp_path, "id: torchlint")
    texts = {
        "train.py": SLOW,
        "a b/demo.ipynb": notebook(SLOW),
        "bin/train": "#!/usr/bin/env python3\n" + SLOW,
        "notes.md": SLOW,
        "stub.pyi": SLOW,
    }
    for name, text in texts.items():
        project.write(name, text)
    run = project.run()
    assert run.returncode == 1
    found = sorted(line.partition(": TL201")[0] for line in run.stdout.splitlines() if ": TL201" in line)
    # Whether a script without suffix is Python, pre-commit tells by its first line once it is executable.
    assert found == ["a b/demo.ipynb:cell 1:5:12", "train.py:5:12"]
    (project.git.folder / "bin/train").chmod(0o755)
    assert "bin/train:6:12: TL201" in project.run("--all-files").stdout
    assert {name: project.read(name) for name in texts} == texts


def test_the_check_passes_clean_code_and_is_skipped_without_any(hooks: Hooks, tmp_path: Path) -> None:
    project = hooks.install_in(tmp_path, "id: torchlint")
    skipped = project.run()
    assert (skipped.returncode, "Skipped" in skipped.stdout) == (0, True)
    project.write("train.py", CLEAN)
    passed = project.run()
    assert (passed.returncode, "Passed" in passed.stdout) == (0, True)


def test_excluded_files_stay_excluded_though_pre_commit_names_them(hooks: Hooks, tmp_path: Path) -> None:
    project = hooks.install_in(tmp_path, "id: torchlint\n        args: [--output-format=concise]", "id: torchlint-fix")
    project.write("pyproject.toml", '[tool.torchlint]\nextend-exclude = ["vendored", "old_*.py"]\n')
    for name in ("vendored/net.py", "vendored/deep/demo.ipynb", "old_train.py", "build/lib.py"):
        project.write(name, notebook(SLOW) if name.endswith("ipynb") else SLOW)
    run = project.run("--all-files")
    assert run.returncode == 0, run.stdout
    project.write("train.py", SLOW)
    run = project.run("--all-files")
    assert run.returncode == 1
    assert [line.split(":")[0] for line in run.stdout.splitlines() if ": TL201" in line] == ["train.py"]
    assert project.read("train.py") == FAST
    assert project.read("vendored/net.py") == project.read("old_train.py") == SLOW


def test_the_repair_fails_the_commit_once(hooks: Hooks, tmp_path: Path) -> None:
    project = hooks.install_in(tmp_path, "id: torchlint-fix")
    project.write("train.py", SLOW)
    project.write("demo.ipynb", notebook(SLOW))
    first = project.run()
    assert first.returncode == 1
    assert "files were modified by this hook" in first.stdout
    assert project.read("train.py") == FAST
    assert project.read("demo.ipynb") == notebook(FAST)
    nbformat.validate(nbformat.read(tmp_path / "demo.ipynb", as_version=nbformat.NO_CONVERT))
    second = project.run()
    assert second.returncode == 0, second.stdout


def test_a_commit_is_stopped_by_the_installed_hook(hooks: Hooks, tmp_path: Path) -> None:
    project = hooks.install_in(tmp_path, "id: torchlint")
    assert pre_commit(tmp_path, hooks.cache, "install").returncode == 0
    project.write("train.py", SLOW)
    project.git("add", "--all")
    commit = ["git", "commit", "--quiet", "--message", "slow"]
    settings: dict[str, Any] = {"cwd": tmp_path, "env": environment(PRE_COMMIT_HOME=str(hooks.cache)), "timeout": 120}
    stopped = subprocess.run(commit, capture_output=True, text=True, check=False, **settings)
    assert (stopped.returncode, "TL201" in stopped.stderr + stopped.stdout) == (1, True)
    project.write("train.py", FAST)
    project.git("add", "--all")
    assert subprocess.run(commit, capture_output=True, check=False, **settings).returncode == 0


def test_the_answer_is_that_of_the_whole_project(hooks: Hooks, tmp_path: Path) -> None:
    """A file that is committed alone is judged with what the others say of it."""
    project = hooks.install_in(tmp_path, "id: torchlint")
    helper = "def track(loss, history):\n    history.append(loss.item())\n"
    loop = "import torch\nfrom helpers import track\n\n\ndef train(model, loader, optimizer, history):\n"
    loop += "    model.cuda()\n    for x, y in loader:\n        loss = torch.nn.functional.mse_loss(model(x), y)\n"
    loop += "        loss.backward()\n        optimizer.step()\n        track(loss, history)\n"
    project.write("train.py", loop)
    project.git.commit()
    project.write("helpers.py", helper)
    run = project.run("--files", "helpers.py")
    assert "helpers.py:2:20: TL101" in run.stdout


def test_who_comes_second_finds_the_work_done(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(FAST)
    write_atomically(path, FAST.encode(), expected_old=SLOW.encode())
    assert path.read_text() == FAST
    path.write_text(CLEAN)
    with pytest.raises(WriteError, match="changed on disk"):
        write_atomically(path, FAST.encode(), expected_old=SLOW.encode())
    assert path.read_text() == CLEAN
    assert list(tmp_path.iterdir()) == [path]


def test_many_runs_at_once_on_the_same_files_do_no_harm(tmp_path: Path) -> None:
    git_repository(tmp_path)
    names = [f"pkg{number % 3}/net{number}.{'ipynb' if number % 4 == 0 else 'py'}" for number in range(24)]
    fixed = {}
    for number, name in enumerate(names):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        before, after = (f"{text}\n# caf\u00e9 {number}\n" for text in (SLOW, FAST))
        path.write_text(notebook(before) if name.endswith("ipynb") else before, encoding="utf-8")
        fixed[name] = notebook(after) if name.endswith("ipynb") else after
    command = [sys.executable, "-m", "torchlint", "--fix", "--quiet", "--jobs=1", *names]
    runs = [
        subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(8)
    ]
    assert [(*run.communicate(timeout=120), run.returncode) for run in runs] == [(b"", b"", 0)] * len(runs)
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in names} == fixed
    left = {path.name for folder in tmp_path.glob("pkg*") for path in folder.iterdir()}
    assert left == {Path(name).name for name in names}
    caches = [path.name for path in (tmp_path / ".torchlint_cache").iterdir() if path.suffix == ".tmp"]
    assert caches == []
