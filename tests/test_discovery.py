"""Which files are linted, which give facts, and where a project begins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from torchlint.config import ConfigFinder, overrides_from
from torchlint.discovery import Discovery, Project, project_root

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with a marker, a package, and what is usually left out."""
    for name in ("pyproject.toml", "train.py", "pkg/__init__.py", "pkg/net.py", "pkg/notes.txt", "demo.ipynb"):
        write(tmp_path / name)
    for name in (".venv/lib/x.py", "build/x.py", "__pycache__/x.py", "node_modules/x.py"):
        write(tmp_path / name)
    return tmp_path


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def discover(
    folder: Path, *paths: object, force_exclude: bool = False, **settings: object
) -> tuple[list[Project], Discovery]:
    overrides = overrides_from({key.replace("_", "-"): value for key, value in settings.items()}, folder)
    discovery = Discovery(ConfigFinder(overrides), force_exclude)
    return discovery.projects([str(path) for path in paths]), discovery


def targets(folder: Path, *paths: object, force_exclude: bool = False, **settings: object) -> list[str]:
    projects, discovery = discover(folder, *(paths or (folder,)), force_exclude=force_exclude, **settings)
    assert discovery.problems == []
    return [os.path.relpath(path, folder).replace(os.sep, "/") for project in projects for path in project.targets]


ALL = ["demo.ipynb", "pkg/__init__.py", "pkg/net.py", "train.py"]


def test_folders_are_walked_and_the_usual_ones_left_out(tree: Path) -> None:
    assert targets(tree) == ALL


def test_a_file_is_linted_with_the_facts_of_its_whole_project(tree: Path) -> None:
    (project,), _ = discover(tree, tree / "pkg" / "net.py")
    assert project.root == str(tree)
    assert [project.relative(path) for path in project.targets] == ["pkg/net.py"]
    assert [project.relative(path) for path in project.files] == ALL


def test_explicit_paths_are_honoured_unless_exclusion_is_forced(tree: Path) -> None:
    write(tree / "script", "import torch\n")
    assert targets(tree, tree / "build" / "x.py", tree / "script") == ["build/x.py", "script"]
    assert targets(tree, tree / "build") == ["build/x.py"]
    assert targets(tree, tree / "build" / "x.py", tree / "build", force_exclude=True) == []
    assert targets(tree, tree / "train.py", force_exclude=True, extend_exclude=["train.py"]) == []


def test_exclude_replaces_the_usual_ones_and_extend_exclude_adds(tree: Path) -> None:
    assert targets(tree, extend_exclude=["pkg/net.py", "*.ipynb"]) == ["pkg/__init__.py", "train.py"]
    assert "build/x.py" in targets(tree, exclude=["pkg"])
    assert "pkg/net.py" not in targets(tree, exclude=["pkg"])


def test_exclusions_of_a_file_are_relative_to_it(tree: Path) -> None:
    write(tree / "pkg" / "torchlint.toml", "extend-exclude = ['/net.py']\n")
    write(tree / "net.py")
    assert targets(tree) == ["demo.ipynb", "net.py", "pkg/__init__.py", "train.py"]


def test_gitignore_files_are_respected_from_the_repository_down(tree: Path) -> None:
    (tree / ".git").mkdir()
    write(tree / ".gitignore", "# comment\n*.ipynb\n/gen\n")
    write(tree / "gen" / "a.py")
    write(tree / "pkg" / ".gitignore", "net.py\n!demo.ipynb\n")
    write(tree / "pkg" / "demo.ipynb")
    write(tree / ".git" / "info" / "exclude", "train.py\n")
    assert targets(tree) == ["pkg/__init__.py", "pkg/demo.ipynb"]
    assert targets(tree, tree / "pkg") == ["pkg/__init__.py", "pkg/demo.ipynb"]
    assert targets(tree, tree / "gen") == ["gen/a.py"]
    assert targets(tree, tree / "train.py") == ["train.py"]
    assert targets(tree, tree / "train.py", force_exclude=True) == []
    assert "train.py" in targets(tree, respect_gitignore=False)


def test_the_order_of_the_arguments_does_not_matter(tree: Path) -> None:
    paths = [tree / "train.py", tree / "pkg", tree, tree / "demo.ipynb"]
    assert targets(tree, *paths) == targets(tree, *reversed(paths)) == ALL


def test_links_to_folders_are_not_followed_and_linked_files_come_once(tree: Path) -> None:
    (tree / "pkg" / "loop").symlink_to(tree)
    (tree / "also_train.py").symlink_to(tree / "train.py")
    (tree / "lost.py").symlink_to(tree / "nowhere.py")
    outside = write(tree.parent / f"{tree.name}-outside.py")
    (tree / "outside.py").symlink_to(outside)
    assert targets(tree) == ["demo.ipynb", "outside.py", "pkg/__init__.py", "pkg/net.py", "train.py"]


def test_paths_that_cannot_be_linted_are_named(tree: Path) -> None:
    (tree / "loop.py").symlink_to(tree / "loop.py")
    projects, discovery = discover(tree, tree / "missing.py", tree / "loop.py", tree / "train.py")
    assert [project.targets for project in projects] == [(str(tree / "train.py"),)]
    assert [message.partition(": ")[0] for message in discovery.problems] == [
        str(tree / "loop.py"),
        str(tree / "missing.py"),
    ]
    assert "no such file" in discovery.problems[1]


def test_a_repository_is_one_project_whatever_packages_it_holds(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path / "ops" / "setup.py")
    net = write(tmp_path / "ops" / "net.py")
    assert project_root(str(net)) == (str(tmp_path), True)


def test_without_a_repository_the_nearest_packaging_folder_is_the_project(tmp_path: Path) -> None:
    write(tmp_path / "setup.cfg")
    write(tmp_path / "inner" / "setup.py")
    net = write(tmp_path / "inner" / "deep" / "net.py")
    assert project_root(str(net)) == (str(tmp_path / "inner"), True)


def test_without_any_marker_a_folder_is_its_own_project_and_a_file_sees_its_neighbours(tmp_path: Path) -> None:
    net = write(tmp_path / "net.py")
    write(tmp_path / "train.py")
    write(tmp_path / "deep" / "other.py")
    (project,), _ = discover(tmp_path, net)
    assert [project.relative(path) for path in project.files] == ["net.py", "train.py"]
    (project,), _ = discover(tmp_path, net, tmp_path)
    assert [project.relative(path) for path in project.targets] == ["deep/other.py", "net.py", "train.py"]


def test_standard_input_stands_in_for_a_file_that_need_not_exist(tree: Path) -> None:
    project = Discovery(ConfigFinder(overrides_from({}, tree))).stdin_project(str(tree / "new.py"))
    assert project.targets == (str(tree / "new.py"),)
    assert [project.relative(path) for path in project.files] == sorted([*ALL, "new.py"])
