"""Where settings come from, what is said about wrong ones, and which rules and which target they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sample_rules import REGISTRY

from torchlint.config import ConfigError, ConfigFinder, Resolved, overrides_from, parse_target, read_config
from torchlint.selection import codes_for_file, selected_codes
from torchlint.torch_target import find_target_torch

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def resolved(folder: Path, **command_line: object) -> Resolved:
    """What is in force in a folder under some options, spelled with underscores."""
    overrides = overrides_from({key.replace("_", "-"): value for key, value in command_line.items()}, folder)
    return ConfigFinder(overrides).for_folder(folder)


def selected(folder: Path, **command_line: object) -> set[str]:
    return set(selected_codes(resolved(folder, **command_line), REGISTRY))


DEFAULTS = set(REGISTRY)


def test_the_nearest_file_counts_alone(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.torchlint]\ndataloader-workers = 8\nfail-on = 'info'\n")
    write(tmp_path / "inner" / "torchlint.toml", "dataloader-workers = 2\n")
    write(tmp_path / "inner" / "pyproject.toml", "[tool.torchlint]\ndataloader-workers = 16\n")
    write(tmp_path / "other" / "pyproject.toml", "[tool.ruff]\nline-length = 100\n")
    assert resolved(tmp_path).settings.dataloader_workers == 8
    assert resolved(tmp_path / "inner").settings.dataloader_workers == 2
    assert resolved(tmp_path / "inner").value("fail-on") == "warning"
    assert resolved(tmp_path / "other").settings.dataloader_workers == 8


def test_the_command_line_comes_on_top_and_origins_are_known(tmp_path: Path) -> None:
    file = write(tmp_path / "torchlint.toml", "dataloader-workers = 8\ntarget-torch = '2.1.0'\n")
    found = resolved(tmp_path, dataloader_workers=2)
    assert found.settings.dataloader_workers == 2
    assert found.target_torch == (2, 1)
    assert found.origin("dataloader-workers") == "command line"
    assert found.origin("target-torch") == str(file)
    assert found.origin("fail-on") == "default"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fail-on = 'info'\nselct = ['TL1']\n", ":2: unknown key 'selct' (did you mean 'select'?)"),
        ("\nfail-on = 'error'\n", ":2: fail-on: "),
        ("select = 'TL1'\n", ":1: select: "),
        ("ignore = [1]\n", ":1: ignore: "),
        ("dataloader-workers = 0\n", ":1: dataloader-workers has to be 1 or more"),
        ("target-torch = 'new'\n", "target-torch is 'new'"),
        ("fail-on = \n", "is not valid TOML: "),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "torchlint.toml", text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_the_line_of_a_key_is_looked_for_in_our_table(tmp_path: Path) -> None:
    path = write(tmp_path / "pyproject.toml", "[tool.other]\nworkers = 1\n\n[tool.torchlint]\nworkers = 1\n")
    with pytest.raises(ConfigError, match=r"pyproject\.toml:5: unknown key 'workers'"):
        read_config(path)


def test_a_broken_file_is_said_once_and_defaults_stand_in(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.torchlint\n")
    finder = ConfigFinder(overrides_from({}, tmp_path))
    assert finder.for_folder(tmp_path).broken
    assert finder.for_folder(tmp_path / "inner").broken
    assert len(finder.problems) == 1
    assert "not valid TOML" in finder.problems[0]
    assert "line 1" in finder.problems[0]


def test_selectors_are_codes_prefixes_names_and_all(tmp_path: Path) -> None:
    assert selected(tmp_path) == DEFAULTS
    assert selected(tmp_path, select=["TL991"]) == {"TL000", "TL991"}
    assert selected(tmp_path, select=["slow-call", "tl992"]) == {"TL000", "TL991", "TL992"}
    assert selected(tmp_path, select=["TL99"], ignore=["TL991"]) == {"TL000", "TL992", "TL993", "TL994"}
    assert selected(tmp_path, select=["TL991"], ignore=["TL99"]) == {"TL000", "TL991"}
    assert selected(tmp_path, select=["ALL"], ignore=["TL991"]) == DEFAULTS - {"TL991"}
    assert selected(tmp_path, ignore=["TL9"]) == {"TL000", "TL001"}


def test_syntax_errors_are_only_ignored_by_name(tmp_path: Path) -> None:
    assert "TL000" in selected(tmp_path, ignore=["ALL"])
    assert "TL000" in selected(tmp_path, ignore=["TL0"])
    assert "TL000" not in selected(tmp_path, ignore=["TL000"])
    assert "TL000" not in selected(tmp_path, ignore=["syntax-error"])


def test_a_selection_on_the_command_line_replaces_the_files(tmp_path: Path) -> None:
    write(tmp_path / "torchlint.toml", "select = ['TL991', 'TL992']\nignore = ['TL993']\n")
    assert selected(tmp_path) == {"TL000", "TL991", "TL992"}
    assert selected(tmp_path, select=["TL993"]) == {"TL000", "TL993"}
    assert selected(tmp_path, ignore=["TL991"]) == {"TL000", "TL992"}
    assert selected(tmp_path, extend_select=["TL993"]) == {"TL000", "TL991", "TL992", "TL993"}


def test_an_unknown_selector_names_its_place_and_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "torchlint.toml", "ignore = ['slow-cal']\n")
    with pytest.raises(ConfigError) as caught:
        selected(tmp_path)
    assert str(caught.value).startswith(f"{path}: ignore: unknown rule 'slow-cal' (did you mean 'slow-call'?)")
    path.unlink()
    with pytest.raises(ConfigError, match=r"--select: unknown rule 'TL9911' \(did you mean 'TL991'\?\)"):
        selected(tmp_path, select=["TL9911"])


def test_per_file_ignores_are_relative_to_their_file(tmp_path: Path) -> None:
    write(tmp_path / "torchlint.toml", "[per-file-ignores]\n'tests/' = ['TL99']\n'*_old.py' = ['slow-call']\n")
    found = resolved(tmp_path)
    codes = selected_codes(found, REGISTRY)

    def off(path: str) -> set[str]:
        return set(codes - codes_for_file(found, codes, str(tmp_path / path), REGISTRY))

    assert off("train.py") == set()
    assert off("tests/deep/test_train.py") == {"TL991", "TL992", "TL993", "TL994"}
    assert off("pkg/net_old.py") == {"TL991"}


@pytest.mark.parametrize(("text", "target"), [("2.1", (2, 1)), ("1.13.1", (1, 13)), ("2", (2, 0)), (" 2.10 ", (2, 10))])
def test_targets_are_versions(text: str, target: tuple[int, int]) -> None:
    assert parse_target(text, "here") == target


@pytest.mark.parametrize("text", ["", "new", "2.x", ">=2.0", "-1"])
def test_other_targets_are_errors(text: str) -> None:
    with pytest.raises(ConfigError, match="here: target-torch"):
        parse_target(text, "here")


@pytest.mark.parametrize(
    ("name", "text", "target"),
    [
        ("requirements.txt", "numpy\ntorch>=1.8,!=1.9  # comment\n", (1, 8)),
        ("requirements.txt", "torchvision>=0.1\ntorch-geometric==1.0\npytorch_lightning>=1.2\n", None),
        ("requirements.txt", "-r other.txt\n--extra-index-url x\ntorch == 2.1.0+cu118\n", (2, 1)),
        ("requirements.txt", "torch~=1.13.0 \\\n    --hash=sha256:00\n", (1, 13)),
        ("requirements.txt", "torch<2\n", None),
        ("requirements.txt", "torch @ https://host/whl/torch-1.13.1%2Bcu117-cp310-linux.whl\n", (1, 13)),
        (
            "requirements-dev.txt",
            "torch==1.13.*; python_version < '3.11'\ntorch>=2.0; python_version >= '3.11'\n",
            (1, 13),
        ),
        ("requirements/base.txt", "torch>1.9\r\n", (1, 9)),
        ("requirements.txt", "torch >= \n", None),
        ("pyproject.toml", "[project]\ndependencies = ['torch>=1.12', 'x']\n", (1, 12)),
        ("pyproject.toml", "[project.optional-dependencies]\ngpu = ['torch[opt]>=2.2']\n", (2, 2)),
        ("pyproject.toml", "[dependency-groups]\ngpu = ['torch>=2.3', {include-group = 'x'}]\n", (2, 3)),
        ("pyproject.toml", "[tool.poetry.dependencies]\ntorch = '^2.1'\n", (2, 1)),
        ("pyproject.toml", "[tool.poetry.dependencies]\ntorch = {version = '>=1.10,<3', optional = true}\n", (1, 10)),
        (
            "pyproject.toml",
            "[tool.poetry.group.gpu.dependencies]\ntorch = [{version = '~1.13'}, {version = '2.*'}]\n",
            (1, 13),
        ),
        ("pyproject.toml", "[tool.poetry.dependencies]\ntorch = '*'\n", None),
        ("pyproject.toml", "[project\ntorch\n", None),
        ("setup.cfg", "[options]\ninstall_requires =\n    numpy\n    torch>=1.7.1\n", (1, 7)),
        ("setup.cfg", "[options.extras_require]\nall = torch>=1.6\n", (1, 6)),
        ("setup.py", "from setuptools import setup\nsetup(install_requires=['torch>=1.5', *more()])\n", (1, 5)),
        ("setup.py", "import x\nrequires = ['torch>=1.4']\nx.setup(install_requires=requires)\n", (1, 4)),
        ("setup.py", "raise SystemExit('torch>=1.3')\n", None),
        ("setup.py", "setup(install_requires=['torch>=1.2'\n", None),
    ],
)
def test_the_target_comes_from_the_metadata(
    tmp_path: Path, name: str, text: str, target: tuple[int, int] | None
) -> None:
    write(tmp_path / name, text)
    found, origin = find_target_torch(tmp_path / "pkg", tmp_path)
    if target is None:
        assert (found, origin) == ((2, 0), "default")
    else:
        assert found == target
        assert origin.startswith(str(tmp_path / name))


def test_the_nearest_folder_with_a_bound_decides_and_its_lowest_bound_counts(tmp_path: Path) -> None:
    write(tmp_path / "requirements.txt", "torch>=1.1\n")
    write(tmp_path / "pkg" / "requirements.txt", "torch\n")
    write(tmp_path / "app" / "requirements.txt", "torch>=2.2\n")
    write(tmp_path / "app" / "requirements-old.txt", "torch>=2.1\n")
    assert find_target_torch(tmp_path / "pkg", tmp_path)[0] == (1, 1)
    assert find_target_torch(tmp_path / "app" / "deep", tmp_path)[0] == (2, 1)


def test_folders_above_the_root_say_nothing(tmp_path: Path) -> None:
    write(tmp_path / "requirements.txt", "torch>=1.1\n")
    assert find_target_torch(tmp_path / "pkg", tmp_path / "pkg") == ((2, 0), "default")
