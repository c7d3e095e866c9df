"""pylint with torchlint's rules, run as people run it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pytest
from plugin_support import SEEDED, TRAIN, environment, install, package, rule_text, run

from torchlint.custom_rules import RuleSet
from torchlint.plugins.pylint import message_ids
from torchlint.rule import all_rules

if TYPE_CHECKING:
    from pathlib import Path

PLUGIN = "--load-plugins=torchlint.plugins.pylint"
OURS = "--disable=all", "--enable=W7101,zero-grad-keeps-zeros,unused-suppression,no-seed,torchlint-error"
CONCISE = "--msg-template={path}:{line}:{column} {msg_id} {symbol} {msg}", "--score=n", "--persistent=n"
BOTH = ["pkg/train.py:9:22 W7101 sync-in-loop", "pkg/train.py:10:8 W7405 zero-grad-keeps-zeros"]

EVALUATION = """\
import torch


def evaluate(model: torch.nn.Module, loader):
    model.eval()
    total = 0
    for images, labels in loader:
        total += (model(images).argmax(1) == labels).sum()
    return total
"""
CALLER = """\
import torch

from pkg.evaluation import evaluate


def main(model: torch.nn.Module, loader):
    with torch.no_grad():
        print(evaluate(model, loader))
"""

WARNING, FATAL, USAGE = 4, 1, 32


class Pylint(NamedTuple):
    """How pylint ended: its status, the places and names of its messages, and everything that it printed."""

    status: int
    messages: list[str]
    out: str
    err: str


class Project:
    """A project in which pylint runs."""

    def __init__(self, tmp_path: Path, **files: str) -> None:
        self.root = package(tmp_path, **files)
        self.runs = tmp_path / "runs"
        self.site = tmp_path / "site"
        self.env = environment(tmp_path, PYTHONPATH=str(self.site), RUNS=str(self.runs))

    def pylint(self, *arguments: str, stdin: str | None = None) -> Pylint:
        done = run("pylint", *CONCISE, *arguments, cwd=self.root, env=self.env, stdin=stdin)
        found = [line for line in done.stdout.replace("\\", "/").splitlines() if re.match(r"\S+:\d+:\d+ ", line)]
        return Pylint(done.returncode, [" ".join(line.split()[:3]) for line in found], done.stdout, done.stderr)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, train=TRAIN)


def test_findings_are_messages_with_place_id_and_name(project: Project) -> None:
    done = project.pylint(PLUGIN, *OURS, "pkg")
    assert (done.status, done.messages, done.err) == (WARNING, BOTH, "")
    assert "`.item()` reads from the GPU on every step" in done.out


def test_rules_are_on_beside_pylints_own(project: Project) -> None:
    done = project.pylint(PLUGIN, "pkg")
    assert {*BOTH, "pkg/train.py:5:0 C0116 missing-function-docstring"} <= set(done.messages)


@pytest.mark.parametrize("option", ["--disable=sync-in-loop", "--disable=W7101"])
def test_options_disable_rules_by_name_and_id(project: Project, option: str) -> None:
    assert project.pylint(PLUGIN, *OURS, option, "pkg").messages == BOTH[1:]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".pylintrc", "[MAIN]\nload-plugins=torchlint.plugins.pylint\ndisable=zero-grad-keeps-zeros,C,E\n"),
        (
            "pyproject.toml",
            '[tool.pylint]\nload-plugins = ["torchlint.plugins.pylint"]\ndisable = ["W7405", "C", "E"]\n',
        ),
    ],
)
def test_configuration_files_load_and_disable(project: Project, name: str, text: str) -> None:
    (project.root / name).write_text(text)
    assert project.pylint("pkg").messages == BOTH[:1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("loss.item())", "loss.item())  # pylint: disable=sync-in-loop"),
        ("loss.item())", "loss.item())  # pylint: disable=W7101"),
        ("    for images", "    # pylint: disable=sync-in-loop\n    for images"),
        ("        loss.b", "        # pylint: disable-next=unused-import\n        loss.b"),
        ("import torch\n", "# pylint: disable=sync-in-loop\nimport torch\n"),
        ("loss.item())", "loss.item())  # torchlint: ignore[TL101]"),
        ("loss.item())", "loss.item())  # noqa: TL101"),
        ("import torch\n", "# torchlint: ignore-file[sync-in-loop]\nimport torch\n"),
    ],
)
def test_comments_of_both_tools_silence_a_finding(tmp_path: Path, old: str, new: str) -> None:
    project = Project(tmp_path, train=TRAIN.replace(old, new, 1))
    names = [message.split()[2] for message in project.pylint(PLUGIN, *OURS, "pkg").messages]
    expected = ["zero-grad-keeps-zeros"]
    assert names == (["sync-in-loop", *expected] if "unused-import" in new else expected)


def test_a_skipped_file_has_no_messages_and_one_of_pylints_is_reported_as_useless(tmp_path: Path) -> None:
    useless = "import torch  # pylint: disable=sync-in-loop\n"
    project = Project(tmp_path, train="# pylint: skip-file\n" + TRAIN, other=useless)
    done = project.pylint(PLUGIN, *OURS, "--enable=useless-suppression", "pkg")
    assert done.messages == ["pkg/other.py:1:0 I0021 useless-suppression"]


def test_torchlints_own_configuration_holds(project: Project) -> None:
    (project.root / "torchlint.toml").write_text("ignore = ['TL101']\n")
    assert project.pylint(PLUGIN, *OURS, "pkg").messages == BOTH[1:]
    (project.root / "torchlint.toml").write_text("extend-exclude = ['pkg/train.py']\n")
    done = project.pylint(PLUGIN, *OURS, "pkg/train.py")
    assert (done.status, done.messages) == (0, [])


def test_a_broken_configuration_of_torchlint_is_a_fatal_message(project: Project) -> None:
    (project.root / "torchlint.toml").write_text("selct = []\n")
    done = project.pylint(PLUGIN, *OURS, "pkg")
    assert done.status & FATAL
    assert done.out.count("F7000 torchlint-error") == 1
    assert "unknown key 'selct' (did you mean 'select'?)" in done.out
    assert set(BOTH) <= set(done.messages)


def test_names_of_modules_and_single_files_are_found_too(project: Project) -> None:
    assert project.pylint(PLUGIN, *OURS, "pkg.train").messages == BOTH
    assert project.pylint(PLUGIN, *OURS, "pkg/train.py").messages == BOTH
    assert project.pylint(PLUGIN, *OURS, "--recursive=y", ".").messages == BOTH


def test_facts_come_from_files_that_pylint_was_not_given(tmp_path: Path) -> None:
    project = Project(tmp_path, evaluation=EVALUATION)
    enabled = "--disable=all", "--enable=eval-without-no-grad", "pkg/evaluation.py"
    assert project.pylint(PLUGIN, *enabled).messages == ["pkg/evaluation.py:4:0 W7401 eval-without-no-grad"]
    (project.root / "pkg" / "main.py").write_text(CALLER)
    assert project.pylint(PLUGIN, *enabled).messages == []


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_one_run_of_torchlint_serves_all_modules_and_processes(tmp_path: Path, jobs: str) -> None:
    files = {f"train{number}": TRAIN for number in range(5)}
    project = Project(tmp_path, **files)
    plugins = "--load-plugins=counting,torchlint.plugins.pylint"
    done = project.pylint(plugins, *OURS, f"--jobs={jobs}", "pkg")
    expected = [line.replace("train", f"train{number}", 1) for number in range(5) for line in BOTH]
    assert (done.status, sorted(done.messages), done.err) == (WARNING, sorted(expected), "")
    (one,) = project.runs.read_text().splitlines()
    assert one.split()[1] == "6"


def test_torchlint_does_not_run_when_all_its_messages_are_off(project: Project) -> None:
    for jobs in ("1", "2"):
        done = project.pylint(
            "--load-plugins=counting,torchlint.plugins.pylint", "--disable=all", "--enable=C", f"-j{jobs}", "pkg"
        )
        assert any("missing-function-docstring" in message for message in done.messages)
    assert not project.runs.exists()


def test_a_file_that_does_not_parse_is_pylints_to_report(tmp_path: Path) -> None:
    project = Project(tmp_path, train=TRAIN, broken="def broken(:\n")
    done = project.pylint(PLUGIN, *OURS, "--enable=syntax-error", "pkg")
    assert [line for line in done.messages if "train" in line] == BOTH
    assert [line.split()[2] for line in done.messages if "broken" in line] == ["syntax-error"]


def test_notebooks_are_left_alone(project: Project) -> None:
    (project.root / "pkg" / "notes.ipynb").write_text("{ no notebook")
    done = project.pylint(PLUGIN, *OURS, "--recursive=y", ".")
    assert (done.status, done.messages, done.err) == (WARNING, BOTH, "")


def test_text_from_standard_input_is_what_counts(project: Project) -> None:
    text = "# a line more\n" + TRAIN.replace("set_to_none=False", "")
    done = project.pylint(PLUGIN, *OURS, "--from-stdin", "pkg/train.py", stdin=text)
    assert done.messages == ["pkg/train.py:10:22 W7101 sync-in-loop"]


def test_exit_status_is_pylints(project: Project) -> None:
    assert project.pylint(PLUGIN, *OURS, "--exit-zero", "pkg").status == 0
    assert project.pylint(PLUGIN, *OURS, "--fail-on=sync-in-loop", "--fail-under=0", "pkg").status == WARNING
    (project.root / "pkg" / "train.py").write_text("import torch\n")
    assert project.pylint(PLUGIN, *OURS, "pkg").status == 0
    assert project.pylint(PLUGIN, *OURS, "--disable=no-such-rule-in-torchlint", "--jobs=-1", "pkg").status == USAGE


def test_pylint_explains_every_rule(project: Project) -> None:
    out = project.pylint(PLUGIN, "--list-msgs").out
    for rule in all_rules():
        if rule.code != "TL000":
            assert f":{rule.name} ({message_ids(RuleSet(all_rules()))[rule.code]})" in out
    assert "torchlint rule TL101" in " ".join(project.pylint(PLUGIN, "--help-msg=sync-in-loop").out.split())


def test_ids_follow_from_codes_and_say_the_level() -> None:
    ids = message_ids(RuleSet(all_rules()))
    assert ids["TL101"] == "W7101"
    assert "TL000" not in ids
    assert len(set(ids.values())) == len(ids)
    assert all(re.fullmatch(rf"[WR]7{code[2:]}", number) for code, number in ids.items())


def test_custom_rules_are_messages_too(tmp_path: Path) -> None:
    project = Project(tmp_path, seeded=SEEDED)
    install(tmp_path / "site", "acme-rules", rule_text())
    for jobs in ("1", "2"):
        done = project.pylint(PLUGIN, "--disable=all", "--enable=no-seed", f"-j{jobs}", "pkg")
        assert done.messages == ["pkg/seeded.py:3:0 W7800 no-seed"]
