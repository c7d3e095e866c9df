"""Many files: the same answer however many processes work, whatever the cache knows, and whoever dies."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from sample_rules import QUIET_CODES, REGISTRY

from torchlint import runner
from torchlint.cache import Cache, cache_folder
from torchlint.checker import Checker, Plan
from torchlint.config import Settings
from torchlint.discovery import Project
from torchlint.runner import ROUNDS, Run

if TYPE_CHECKING:
    from pathlib import Path

    from torchlint.diagnostics import FileReport


def make_project(root: Path, files: dict[str, str | bytes]) -> Project:
    paths = []
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        paths.append(str(path))
    return Project(str(root), tuple(sorted(paths)), tuple(sorted(paths)))


def plans(project: Project, codes: tuple[str, ...] = QUIET_CODES) -> list[Plan]:
    return [Plan(path, project.relative(path), frozenset(codes), Settings(), (2, 0)) for path in project.targets]


def found(reports: list[FileReport]) -> list[tuple[str, str, int]]:
    return [
        (os.path.basename(report.path), finding.code, finding.location.row)
        for report in reports
        for finding in report.findings
    ]


MIXED: dict[str, str | bytes] = {
    "a.py": "import torch\nslow()\n",
    "pkg/__init__.py": "",
    "pkg/b.py": "from torch import nn\ndef bad():\n    slow()\n",
    "broken.py": "import torch\nx = (\n",
    "bytes.py": b"import torch\n\xff\n",
    "nul.py": b"import torch\n\0\n",
    "empty.py": "",
    "windows.py": "import torch\r\nslow()\r\n",
    "marked.py": b"\xef\xbb\xbfimport torch\nslow()\n",
    "deep.py": "import torch\nx = " + "(" * 1000 + "1" + ")" * 1000 + "\n",
}
FOUND = [
    ("a.py", "TL991", 2),
    ("broken.py", "TL000", 2),
    ("bytes.py", "TL000", 2),
    ("deep.py", "TL000", 2),
    ("marked.py", "TL991", 2),
    ("nul.py", "TL000", 2),
    ("b.py", "TL992", 2),
    ("b.py", "TL991", 3),
    ("windows.py", "TL991", 2),
]


def ignoring_deep(rows: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Whether a thousand parentheses parse, and at which line they fail, depends on the version of Python."""
    return [row for row in rows if row[0] != "deep.py"]


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_any_number_of_processes_finds_the_same(tmp_path: Path, jobs: int) -> None:
    project = make_project(tmp_path, MIXED)
    reports = Run(project, plans(project), REGISTRY, jobs).reports()
    assert ignoring_deep(found(reports)) == ignoring_deep(FOUND)
    assert [report.path for report in reports] == list(project.targets)
    assert not any(report.errors or report.unreadable for report in reports)


def test_modules_that_do_not_fit_in_memory_are_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(tmp_path, MIXED)
    monkeypatch.setattr("torchlint.checker.KEPT_BYTES", 30)
    monkeypatch.setattr("torchlint.checker.COLLECT_BYTES", 1)
    assert ignoring_deep(found(Run(project, plans(project), REGISTRY, 1).reports())) == ignoring_deep(FOUND)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_rule_that_raises_costs_one_message_for_each_file(tmp_path: Path, jobs: int) -> None:
    project = make_project(tmp_path, {"a.py": "import torch\nslow()\n", "b.py": "import torch\nslow()\n"})
    reports = Run(project, plans(project, ("TL991", "TL993")), REGISTRY, jobs).reports()
    assert found(reports) == [("a.py", "TL991", 2), ("b.py", "TL991", 2)]
    assert [report.errors for report in reports] == [
        (f"internal error: TL993 on {path}: ValueError: two lines",) for path in project.targets
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="kills with a POSIX signal")
def test_a_process_that_dies_costs_the_file_it_was_at(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"{n}.py": "import torch\nslow()\n" for n in range(8)}
    project = make_project(tmp_path, files | {"3.py": "import torch\ncrash_here\nslow()\n"})
    reports = Run(project, plans(project, ("TL991", "TL994")), REGISTRY, 2).reports()
    assert found(reports) == [(f"{n}.py", "TL991", 2) for n in range(8) if n != 3]
    (error,) = [error for report in reports for error in report.errors]
    assert error == f"internal error: a worker process died on {tmp_path / '3.py'} (killed by SIGKILL)"


def test_a_file_that_vanished_is_reported_and_the_others_linted(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"a.py": "import torch\nslow()\n", "b.py": ""})
    os.unlink(tmp_path / "b.py")
    reports = Run(project, plans(project), REGISTRY).reports()
    assert found(reports) == [("a.py", "TL991", 2)]
    assert reports[1].unreadable == f"{tmp_path / 'b.py'}: cannot be read: No such file or directory"


def test_an_overlay_stands_in_for_the_file(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"a.py": "import torch\n"})
    overlay = {str(tmp_path / "a.py"): b"import torch\nslow()\n"}
    assert found(Run(project, plans(project), REGISTRY, overlay=overlay).reports()) == [("a.py", "TL991", 2)]


def cached_run(project: Project, folder: Path, codes: tuple[str, ...] = QUIET_CODES) -> list[FileReport]:
    return Run(project, plans(project, codes), REGISTRY, cache=Cache(folder, project.root)).reports()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that checkers get, as `verb file name`."""
    calls: list[str] = []
    summarize, check = Checker.summarize, Checker.check

    def counting_summarize(self: Checker, path: str, relative: str, number: int, linked: bytes | None) -> object:
        calls.append(f"summarize {relative}")
        return summarize(self, path, relative, number, linked)

    def counting_check(self: Checker, plan: Plan, linked: bytes | None) -> object:
        calls.append(f"check {plan.relative}")
        return check(self, plan, linked)

    monkeypatch.setattr(Checker, "summarize", counting_summarize)
    monkeypatch.setattr(Checker, "check", counting_check)
    return calls


def test_an_unchanged_project_is_answered_from_the_cache(tmp_path: Path, counted: list[str]) -> None:
    project = make_project(tmp_path / "project", MIXED)
    first = cached_run(project, tmp_path / "cache")
    assert set(counted) == {f"{verb} {name}" for verb in ("summarize", "check") for name in MIXED}
    counted.clear()
    assert cached_run(project, tmp_path / "cache") == first
    assert counted == []
    assert (tmp_path / "cache" / ".gitignore").read_text() == "*\n"


def test_what_changed_is_done_again_and_nothing_else(tmp_path: Path, counted: list[str]) -> None:
    project = make_project(tmp_path / "project", MIXED)
    cached_run(project, tmp_path / "cache")
    (tmp_path / "project" / "a.py").write_text("import torch\n\nslow()\n")
    counted.clear()
    assert ("a.py", "TL991", 3) in found(cached_run(project, tmp_path / "cache"))
    assert set(counted) == {"summarize a.py", "check a.py"}


def test_other_rules_or_settings_are_another_answer(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", MIXED)
    cached_run(project, tmp_path / "cache")
    assert {code for _, code, _ in found(cached_run(project, tmp_path / "cache", ("TL992",)))} == {"TL992"}
    assert ignoring_deep(found(cached_run(project, tmp_path / "cache"))) == ignoring_deep(FOUND)


def test_a_changed_caller_changes_what_is_said_of_the_callee(tmp_path: Path) -> None:
    from torchlint.selection import default_registry

    helper = (
        "import torch\ndef show(loss: torch.Tensor):\n    text = 'cuda'\n    print(loss.item(), text)\n    return 1\n"
    )
    caller = (
        "from helper import show\ndef train(model, loader, opt):\n    for x in loader:\n"
        "        loss = model(x).sum()\n        loss.backward()\n        opt.step()\n        {}\n"
    )
    project = make_project(tmp_path / "project", {"helper.py": helper, "train.py": caller.format("show(loss)")})

    def lines() -> list[tuple[str, str, int]]:
        run = Run(
            project, plans(project, ("TL101",)), default_registry(), cache=Cache(tmp_path / "cache", project.root)
        )
        return found(run.reports())

    assert lines() == [("helper.py", "TL101", 4)]
    (tmp_path / "project" / "train.py").write_text(caller.format("pass"))
    assert lines() == []


def test_answers_that_expire_are_not_kept(tmp_path: Path, counted: list[str]) -> None:
    project = make_project(
        tmp_path / "project", {"a.py": "import torch\nslow()  # torchlint: ignore until=2999-01-01\n"}
    )
    cached_run(project, tmp_path / "cache")
    counted.clear()
    cached_run(project, tmp_path / "cache")
    assert counted == ["check a.py"]


@pytest.mark.parametrize("content", [b"", b"garbage", msgspec.msgpack.encode(["another version", b"", {}])])
def test_a_broken_cache_is_no_cache(tmp_path: Path, content: bytes) -> None:
    project = make_project(tmp_path / "project", MIXED)
    first = cached_run(project, tmp_path / "cache")
    (file,) = (tmp_path / "cache").glob("*.msgpack")
    file.write_bytes(content)
    assert cached_run(project, tmp_path / "cache") == first


def test_a_cache_that_cannot_be_written_is_no_cache(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", MIXED)
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert ignoring_deep(found(cached_run(project, tmp_path / "cache"))) == ignoring_deep(FOUND)


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHLINT_CACHE_DIR", raising=False)
    root = str(tmp_path)
    assert cache_folder(root, None, is_marked=True) == tmp_path / ".torchlint_cache"
    assert cache_folder(root, None, is_marked=False) is None
    assert cache_folder(root, tmp_path / "named", is_marked=False) == tmp_path / "named"
    monkeypatch.setenv("TORCHLINT_CACHE_DIR", str(tmp_path / "variable"))
    assert cache_folder(root, tmp_path / "named", is_marked=True) == tmp_path / "variable"


def test_progress_counts_every_round_and_ends_at_the_total(tmp_path: Path) -> None:
    project = make_project(tmp_path, MIXED)
    seen: list[tuple[int, int]] = []
    Run(project, plans(project), REGISTRY, progress=lambda done, total: seen.append((done, total))).reports()
    total = (ROUNDS + 1) * len(MIXED)
    assert {of for _, of in seen} == {total}
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (total, total)


def test_more_processes_only_for_more_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[int] = []

    class Counting(runner.Crew):
        def __init__(self, checker: Checker, jobs: int, sizes: dict[str, int]) -> None:
            made.append(jobs)
            super().__init__(checker, jobs, sizes)

    monkeypatch.setattr(runner, "Crew", Counting)
    monkeypatch.setattr(runner, "_cpu_count", lambda: 3)
    project = make_project(tmp_path, {"a.py": "import torch\n", "b.py": "import torch\n"})
    Run(project, plans(project), REGISTRY).reports()
    assert made == []
    monkeypatch.setattr(runner, "BYTES_PER_PROCESS", 5)
    Run(project, plans(project), REGISTRY).reports()
    assert made == [2]


def test_what_went_wrong_in_another_file_is_said_again_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchlint.semantics import FileSummary, Module

    whole = Module.summary

    def failing(self: Module) -> FileSummary:
        if self.path == "a.py":
            raise ValueError("no facts")
        return whole(self)

    monkeypatch.setattr(Module, "summary", failing)
    project = make_project(tmp_path / "project", {"a.py": "import torch\n", "b.py": "import torch\n"})
    first = cached_run(project, tmp_path / "cache")
    assert [error for report in first for error in report.errors if "no facts" in error]
    assert cached_run(project, tmp_path / "cache") == first
