"""Rules from installed packages and from a project's own files: what loads them, what does not, and what they share
with the built-in ones.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from plugin_support import SEEDED, environment, install, rule_text, run

from torchlint import custom_rules
from torchlint.custom_rules import load_rules

PLUGGED = 'plugins = ["./lint_rules.py"]\n'
LEAVES_A_TRACE = "import pathlib\npathlib.Path(__file__).with_name('trace').touch()\n"


@pytest.fixture
def torchlint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line in a project that names a plugin file, for a user without settings."""
    project = tmp_path / "project"
    project.mkdir()
    (project / ".git").mkdir()
    monkeypatch.chdir(project)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    Path("torchlint.toml").write_text(PLUGGED)
    Path("lint_rules.py").write_text(LEAVES_A_TRACE + rule_text())
    Path("train.py").write_text(SEEDED)
    return CommandLine(capsys)


# Files of a project


def test_a_file_of_a_project_is_not_loaded_unless_the_user_says_so(torchlint: CommandLine) -> None:
    run = torchlint(".")
    assert (run.status, run.out) == (0, "All checks passed in 2 files.\n")
    warning, _, rest = run.err.partition("\n")
    assert rest == ""
    assert warning.startswith(f"warning: {Path('torchlint.toml').absolute()}: plugins are not loaded (./lint_rules.py)")
    assert "--allow-plugins" in warning
    assert str(custom_rules.user_settings_file()) in warning
    assert not Path("trace").exists()


def test_the_command_line_allows_it(torchlint: CommandLine) -> None:
    run = torchlint("--allow-plugins", "--output-format=concise", ".")
    assert (run.status, run.err) == (1, "")
    assert run.out.startswith("train.py:3:1: ACME001 seed it elsewhere")
    assert Path("trace").exists()


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ("allow-plugins = true", 1),
        ("allow-plugins = false", 0),
        ("allow-plugins = ['{here}']", 1),
        ("allow-plugins = ['{here}/elsewhere']", 0),
        ("allow-plugins = []", 0),
    ],
)
def test_the_users_own_settings_allow_it(torchlint: CommandLine, settings: str, status: int) -> None:
    user = custom_rules.user_settings_file()
    user.parent.mkdir(parents=True)
    user.write_text(settings.format(here=Path.cwd().as_posix()))
    assert torchlint(".").status == status


def test_a_project_cannot_allow_itself(torchlint: CommandLine) -> None:
    Path("torchlint.toml").write_text(PLUGGED + "allow-plugins = true\n")
    run = torchlint(".")
    assert run.status == 2
    assert "unknown key 'allow-plugins'" in run.err
    assert not Path("trace").exists()


def test_a_broken_settings_file_of_the_user_allows_nothing(torchlint: CommandLine) -> None:
    user = custom_rules.user_settings_file()
    user.parent.mkdir(parents=True)
    user.write_text("allow-plugin = true")
    run = torchlint(".")
    assert run.status == 2
    assert f"error: {user}: cannot be used: Object contains unknown field `allow-plugin`" in run.err
    assert not Path("trace").exists()


def test_rules_that_are_not_loaded_may_be_named(torchlint: CommandLine) -> None:
    Path("torchlint.toml").write_text(PLUGGED + "extend-select = ['ACME']\nper-file-ignores = {'x.py' = ['no-seed']}\n")
    Path("train.py").write_text(SEEDED.replace("(0)", "(0)  # torchlint: ignore[ACME001]"))
    assert torchlint(".").status == 0
    assert torchlint("--allow-plugins", ".").status == 0
    run = torchlint("--select", "ACME001", ".")
    assert (run.status, run.out) == (2, "")
    assert "unknown rule 'ACME001'" in run.err
    Path("train.py").write_text("x = 1  # torchlint: ignore[ACME001]\n")
    assert torchlint(".").status == 0
    assert "TL001" in torchlint("--allow-plugins", ".").out


def test_custom_rules_are_selected_ignored_and_suppressed_like_others(torchlint: CommandLine) -> None:
    def found(*options: str) -> bool:
        return "ACME001" in torchlint("--allow-plugins", *options, ".").out

    assert found()
    assert found("--select", "ACME")
    assert found("--select", "no-seed")
    assert found("--select", "ACME0", "--ignore", "ACME9") is False  # ACME9 means no rule: wrong usage
    assert not found("--select", "TL")
    assert not found("--ignore", "ACME001")
    assert not found("--per-file-ignores", "train.py:no-seed")
    for comment in ("torchlint: ignore[ACME001]", "torchlint: ignore[no-seed]", "torchlint: ignore", "noqa: ACME001"):
        Path("train.py").write_text(SEEDED.replace("(0)", f"(0)  # {comment}"))
        assert torchlint("--allow-plugins", ".").status == 0, comment


def test_custom_rules_are_listed_and_explained(torchlint: CommandLine) -> None:
    listed = torchlint("rules", "--allow-plugins")
    assert listed.status == 0
    assert "ACME001  no-seed" in listed.out
    assert "ACME001" not in torchlint("rules").out
    page = torchlint("rule", "no-seed", "--allow-plugins")
    assert page.out.startswith("# ACME001 no-seed\n\n*warning · no fix · on by default · custom*\n\n`manual_seed` is")
    assert "ACME001" in torchlint("config", "--allow-plugins").out.partition("rules on:")[2]


def test_rules_of_a_nested_project_concern_only_its_files(torchlint: CommandLine) -> None:
    for name in ("lint_rules.py", "torchlint.toml"):
        Path("inner").mkdir(exist_ok=True)
        Path(name).rename(Path("inner", name))
    Path("inner/train.py").write_text(SEEDED)
    for selection in ((), ("--select", "ACME001")):
        run = torchlint("--allow-plugins", "--output-format=concise", "-q", *selection, ".")
        assert [line.split(":")[0].replace(os.sep, "/") for line in run.out.splitlines()] == ["inner/train.py"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ValueError('two\\nlines')", "its rules cannot be loaded: ValueError: two lines"),
        ("raise SystemExit(3)", "its rules cannot be loaded: SystemExit: 3"),
        ("def broken(:", "its rules cannot be loaded: SyntaxError"),
        (rule_text(code="TL101"), "codes that begin with TL are torchlint's own"),
        (rule_text(code="acme1"), "its code is 'acme1'; it has to be"),
        (rule_text(name="No Seed"), "its name is 'No Seed'; it has to be"),
        (rule_text(name="sync-in-loop"), "defines a rule TL101 sync-in-loop already"),
        (rule_text().replace("Level.WARNING", "'warning'"), "its level has to be Level.WARNING or Level.INFO"),
    ],
)
def test_a_broken_plugin_costs_one_message_and_the_run_goes_on(torchlint: CommandLine, text: str, message: str) -> None:
    Path("lint_rules.py").write_text(text)
    Path("train.py").write_text(
        "import torch\n\noptimizer = torch.optim.SGD([])\noptimizer.zero_grad(set_to_none=False)\n"
    )
    run = torchlint("--allow-plugins", "--output-format=concise", "train.py")
    assert run.status == 2
    assert run.out.startswith("train.py:4:1: TL405")
    (line,) = run.err.splitlines()
    assert line.startswith(f"error: {Path('lint_rules.py').absolute()}: ")
    assert message in line


def test_a_plugin_file_that_is_missing_is_named(torchlint: CommandLine) -> None:
    Path("lint_rules.py").unlink()
    run = torchlint("--allow-plugins", ".")
    assert run.status == 2
    assert "lint_rules.py: its rules cannot be loaded: FileNotFoundError" in run.err


def test_an_edited_plugin_is_seen_in_spite_of_the_cache(torchlint: CommandLine) -> None:
    assert "seed it elsewhere" in torchlint("--allow-plugins", ".").out
    assert Path(".torchlint_cache").is_dir()
    stat = Path("lint_rules.py").stat()
    Path("lint_rules.py").write_text(LEAVES_A_TRACE + rule_text(message="seed it somewhere"))
    os.utime("lint_rules.py", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert "seed it somewhere" in torchlint("--allow-plugins", ".").out


def test_custom_rules_run_in_worker_processes(torchlint: CommandLine) -> None:
    for number in range(4):
        Path(f"more{number}.py").write_text(SEEDED)
    run = torchlint("--allow-plugins", "--jobs=3", "--no-cache", "--output-format=concise", "-q", ".")
    assert (run.status, run.err) == (1, "")
    assert run.out.count("ACME001") == 5


def test_rules_reach_a_worker_that_inherits_nothing(torchlint: CommandLine, tmp_path: Path) -> None:
    from torchlint.config import ConfigFinder, overrides_from

    finder = ConfigFinder(overrides_from({}, Path.cwd()))
    finder.for_folder(Path.cwd())
    rules = load_rules(finder.files, allow=True)
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)['ACME001'].name)"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(rules), capture_output=True, timeout=60, check=True
    )
    assert done.stdout.decode().strip() == "no-seed"


# Installed packages


def project_with(tmp_path: Path, text: str = SEEDED) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / ".git").mkdir()
    (project / "train.py").write_text(text)
    return project


@pytest.mark.parametrize("target", [None, "acme_rules:NoSeed", "acme_rules:ALL"])
def test_an_installed_package_brings_rules_without_being_asked(tmp_path: Path, target: str | None) -> None:
    project = project_with(tmp_path)
    install(tmp_path / "site", "acme-rules", rule_text() + "\nALL = [NoSeed]\n", target)
    env = environment(tmp_path, PYTHONPATH=str(tmp_path / "site"))
    done = run("torchlint", "--output-format=concise", "--jobs=2", ".", cwd=project, env=env)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("train.py:3:1: ACME001 seed it elsewhere")
    assert "ACME001  no-seed" in run("torchlint", "rules", cwd=project, env=env).stdout


def test_an_upgraded_package_is_seen_in_spite_of_the_cache(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    env = environment(tmp_path, PYTHONPATH=str(tmp_path / "site"))
    install(tmp_path / "site", "acme-rules", rule_text())
    assert "seed it elsewhere" in run("torchlint", ".", cwd=project, env=env).stdout
    install(tmp_path / "site", "acme-rules", rule_text(message="seed it in the launcher, please"))
    assert "in the launcher" in run("torchlint", ".", cwd=project, env=env).stdout


def test_a_broken_package_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    install(tmp_path / "site", "acme-broken", "import nowhere_to_be_found\n")
    install(tmp_path / "site", "acme-rules", rule_text())
    env = environment(tmp_path, PYTHONPATH=str(tmp_path / "site"))
    done = run("torchlint", "--output-format=concise", ".", cwd=project, env=env)
    assert done.returncode == 2
    assert "ACME001" in done.stdout
    assert done.stderr.splitlines() == [
        "error: package acme-broken (entry point 'acme_broken' of torchlint.rules): its rules cannot be loaded: "
        "ModuleNotFoundError: No module named 'nowhere_to_be_found'"
    ]


def test_two_packages_with_one_code_are_a_clash(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    install(tmp_path / "site", "acme-one", rule_text())
    install(tmp_path / "site", "acme-two", rule_text(name="other-name"))
    env = environment(tmp_path, PYTHONPATH=str(tmp_path / "site"))
    done = run("torchlint", ".", cwd=project, env=env)
    assert done.returncode == 2
    assert "package acme-two" in done.stderr
    assert "acme_one defines a rule ACME001 no-seed already" in done.stderr


def test_metadata_in_the_current_folder_installs_nothing(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    install(project, "acme-rules", LEAVES_A_TRACE + rule_text())
    for path in ("", "."):
        done = run("torchlint", "train.py", cwd=project, env=environment(tmp_path, PYTHONPATH=path))
        assert (done.returncode, done.stderr) == (0, "")
    assert not list(project.rglob("trace"))


def test_a_run_without_plugins_does_not_read_the_metadata_of_packages(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    code = "import sys; from torchlint.cli import main; main(['.']); print('importlib.metadata' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, env=environment(tmp_path), capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "False"
