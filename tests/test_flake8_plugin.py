"""flake8 with torchlint's rules, run as people run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from plugin_support import SEEDED, TRAIN, environment, install, package, rule_text, run

if TYPE_CHECKING:
    from pathlib import Path

BOTH = ["pkg/train.py:9:23: TL101", "pkg/train.py:10:9: TL405"]


class Flake8(NamedTuple):
    """How flake8 ended: its status, the places and codes that it printed, and all of its text."""

    status: int
    found: list[str]
    out: str
    err: str


class Project:
    """A project in which flake8 runs."""

    def __init__(self, tmp_path: Path, **files: str) -> None:
        self.root = package(tmp_path, **files)
        self.runs = tmp_path / "runs"
        # flake8 loads no plugin by option: this one comes by an entry point, so that it is there before ours.
        (tmp_path / "site" / "sitecustomize.py").write_text("import counting\n")
        self.env = environment(tmp_path, PYTHONPATH=str(tmp_path / "site"), RUNS=str(self.runs))

    def flake8(self, *arguments: str, stdin: str | None = None) -> Flake8:
        done = run("flake8", *arguments, cwd=self.root, env=self.env, stdin=stdin)
        lines = done.stdout.replace("\\", "/").splitlines()
        found = [" ".join(line.split()[:2]).removeprefix("./") for line in lines]
        return Flake8(done.returncode, found, done.stdout, done.stderr)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, train=TRAIN)


def test_rules_are_on_without_being_asked_for_and_exit_one(project: Project) -> None:
    done = project.flake8("pkg")
    assert (done.status, done.found, done.err) == (1, BOTH, "")
    assert "TL101 `.item()` reads from the GPU on every step" in done.out
    assert project.flake8().found == BOTH


def test_clean_files_exit_zero(tmp_path: Path) -> None:
    assert Project(tmp_path, train="import torch\n\ntorch.zeros(3)\n").flake8("pkg") == (0, [], "", "")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--select", "TL"), BOTH),
        (("--select", "TL1"), BOTH[:1]),
        (("--select", "TL405"), BOTH[1:]),
        (("--extend-ignore", "TL101"), BOTH[1:]),
        (("--extend-select", "TL101", "--ignore", "TL"), BOTH[:1]),
        (("--per-file-ignores", "pkg/train.py:TL4"), BOTH[:1]),
        (("--select", "E,W"), []),
    ],
)
def test_options_select_and_ignore_by_code(project: Project, options: tuple[str, ...], expected: list[str]) -> None:
    done = project.flake8(*options, "pkg")
    assert (done.status, done.found) == (int(bool(expected)), expected)


def test_torchlint_does_not_run_when_flake8_selects_none_of_its_rules(project: Project) -> None:
    assert project.flake8("--select", "E,W", "pkg") == (0, [], "", "")
    assert not project.runs.exists()


def test_configuration_files_of_both_tools_hold(project: Project) -> None:
    (project.root / ".flake8").write_text("[flake8]\nextend-ignore = TL405\n")
    assert project.flake8("pkg").found == BOTH[:1]
    (project.root / "torchlint.toml").write_text("ignore = ['sync-in-loop']\n")
    assert project.flake8("pkg") == (0, [], "", "")
    (project.root / "torchlint.toml").write_text("extend-exclude = ['train.py']\n")
    assert project.flake8("pkg/train.py") == (0, [], "", "")


@pytest.mark.parametrize(
    "comment", ["noqa: TL101", "noqa", "torchlint: ignore[TL101]", "torchlint: ignore[sync-in-loop] until=2999-01-01"]
)
def test_comments_of_both_tools_silence_a_finding(tmp_path: Path, comment: str) -> None:
    project = Project(tmp_path, train=TRAIN.replace("loss.item())", f"loss.item())  # {comment}"))
    assert project.flake8("--select", "TL", "pkg").found == BOTH[1:]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_one_run_of_torchlint_serves_all_files_and_processes(tmp_path: Path, jobs: str) -> None:
    project = Project(tmp_path, **{f"train{number}": TRAIN for number in range(5)})
    done = project.flake8("--jobs", jobs, "pkg")
    expected = [line.replace("train", f"train{number}", 1) for number in range(5) for line in BOTH]
    assert (done.status, sorted(done.found), done.err) == (1, sorted(expected), "")
    (one,) = project.runs.read_text().splitlines()
    assert one.split()[1] == "6"


def test_workers_that_inherit_nothing_lint_too(tmp_path: Path) -> None:
    project = Project(tmp_path, **{f"train{number}": TRAIN for number in range(3)})
    imports = "import multiprocessing as m, sys\nfrom flake8.main.cli import main\n"
    main = "if __name__ == '__main__':\n    m.set_start_method('spawn')\n    sys.exit(main(['-j2', 'pkg']))\n"
    (tmp_path / "site" / "spawning.py").write_text(imports + main)
    done = run("spawning", cwd=project.root, env=project.env)
    assert done.stdout.count("TL101") == 3, done.stderr


def test_a_file_that_does_not_parse_is_flake8s_to_report(tmp_path: Path) -> None:
    project = Project(tmp_path, train=TRAIN, broken="def broken(:\n")
    found = project.flake8("--select", "TL,E9", "pkg").found
    assert [line.split()[1] for line in found if "broken" in line] == ["E999"]
    assert [line for line in found if "train" in line] == BOTH


def test_notebooks_are_left_alone(project: Project) -> None:
    (project.root / "pkg" / "notes.ipynb").write_text("{ no notebook")
    assert project.flake8("--select", "TL").found == BOTH


def test_text_from_standard_input_is_what_counts(project: Project) -> None:
    text = "# a line more\n" + TRAIN
    assert project.flake8("-", stdin=text).found == ["stdin:10:23: TL101", "stdin:11:9: TL405"]
    named = project.flake8("--stdin-display-name", "pkg/train.py", "-", stdin=text)
    assert named.found == ["pkg/train.py:10:23: TL101", "pkg/train.py:11:9: TL405"]


def test_a_broken_configuration_of_torchlint_is_reported(project: Project) -> None:
    (project.root / "torchlint.toml").write_text("selct = []\n")
    done = project.flake8("--jobs", "1", "pkg")
    assert done.status == 1
    assert done.out.count("unknown key 'selct' (did you mean 'select'?)") == 1
    assert set(BOTH) < set(done.found)


def test_custom_rules_appear_under_their_own_code(tmp_path: Path) -> None:
    project = Project(tmp_path, seeded=SEEDED)
    install(tmp_path / "site", "acme-rules", rule_text(code="ACM001"))
    assert project.flake8("pkg").found == ["pkg/seeded.py:3:1: ACM001"]
    assert project.flake8("--select", "ACM", "pkg").found == ["pkg/seeded.py:3:1: ACM001"]
    assert project.flake8("--select", "TL", "pkg").found == []


def test_the_version_names_the_plugin(project: Project) -> None:
    assert "torchlint" in project.flake8("--version").out
    assert not project.runs.exists()
