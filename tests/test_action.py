"""The GitHub action and the examples for CI: valid by their vendors' schemas, and run as a runner would run them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import CHECKOUT, copy_checkout

ACTION = yaml.safe_load((CHECKOUT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
PAGE = (CHECKOUT / "docs" / "ci.md").read_text(encoding="utf-8")
EXAMPLES = {
    found["name"]: found[0].removeprefix("```yaml\n").removesuffix("```")
    for found in re.finditer(r"```yaml\n# (?P<name>\S+)\n[\s\S]*?```", PAGE)
}
EXPRESSION = re.compile(r"\$\{\{\s*(?P<path>[\w.-]+)\s*\}\}")

SLOW = "import torch\n\nx = torch.ones(3).cuda()\n"
CLEAN = "import torch\n\nx = torch.ones(3)\n"


@dataclass
class Runner:
    """Runs the scripts of the composite action one by one, as GitHub documents it for `shell: bash`."""

    folder: Path
    inputs: dict[str, str] = field(default_factory=dict)
    action: Path = CHECKOUT
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    log: str = ""

    def __post_init__(self) -> None:
        (self.folder / "repository").mkdir()
        (self.folder / "temporary files").mkdir()

    def write(self, name: str, text: str) -> None:
        path = self.folder / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, name: str) -> int:
        """The exit status of the step with this name."""
        step = next(step for step in STEPS if step["name"] == name)
        output, script = self.folder / "output", self.folder / "script.sh"
        output.write_text("")
        script.write_text(step["run"], encoding="utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=self.folder / "repository",
            env=self._environment(step, output),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        self.log += done.stdout
        if "id" in step:
            pairs = (line.split("=", 1) for line in output.read_text().splitlines())
            self.outputs[step["id"]] = dict(pairs)
        return done.returncode

    def _environment(self, step: dict[str, Any], output: Path) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("GITHUB_", "TORCHLINT"))}
        own = {
            name: EXPRESSION.sub(lambda found: self._value(found["path"]), text) for name, text in step["env"].items()
        }
        return {**kept, **own, "GITHUB_OUTPUT": str(output), "RUNNER_TEMP": str(self.folder / "temporary files")}

    def _value(self, path: str) -> str:
        match path.split("."):
            case ["inputs", name]:
                return self.inputs.get(name, str(ACTION["inputs"][name]["default"]))
            case ["steps", step, "outputs", name]:
                return self.outputs[step].get(name, "")
            case ["github", "action_path"]:
                return str(self.action)
        raise AssertionError(f"no value for {path}")


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A runner on which torchlint is installed, as the first step leaves it."""
    runner = Runner(tmp_path)
    runner.outputs["install"] = {"torchlint": str(Path(sys.executable).with_name("torchlint"))}
    return runner


def validate(path: Path, schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    transform = ["--data-transform", schema] if schema in ("gitlab-ci", "azure-pipelines") else []
    # Azure's schema has patterns that are wrong as Unicode ones.
    command += ["--regex-variant", "nonunicode"] if schema == "azure-pipelines" else []
    done = subprocess.run([*command, *transform], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# What the file says


def test_the_action_is_valid() -> None:
    validate(CHECKOUT / "action.yml", "github-actions")


def test_nothing_from_outside_becomes_part_of_a_script() -> None:
    scripts = [step for step in STEPS if "run" in step]
    assert scripts
    for step in scripts:
        assert "${{" not in step["run"], step["name"]
        assert step["shell"] == "bash"
        assert not re.search(r"\beval\b|\bbash -c\b", step["run"])
    assert not any("github.event" in json.dumps(step) or "github.head_ref" in json.dumps(step) for step in STEPS)


def test_expressions_name_inputs_and_steps_that_exist() -> None:
    known = {f"inputs.{name}" for name in ACTION["inputs"]} | {"github.action_path"}
    written = {
        f"steps.{step['id']}.outputs.{name}"
        for step in STEPS
        if "run" in step and "id" in step
        for name in re.findall(r'echo "([\w-]+)=', step["run"])
    }
    text = (CHECKOUT / "action.yml").read_text(encoding="utf-8")
    used = {found["path"] for found in EXPRESSION.finditer(text)}
    used |= set(re.findall(r"steps\.[\w.-]+", "".join(step.get("if", "") for step in STEPS)))
    assert used <= known | written
    assert {f"inputs.{name}" for name in ACTION["inputs"]} <= used


def test_the_page_lists_every_input() -> None:
    assert set(re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE)) == set(ACTION["inputs"])


# What the steps do


def test_the_action_installs_its_own_revision(tmp_path: Path) -> None:
    runner = Runner(tmp_path, action=copy_checkout(tmp_path / "the action"))
    assert runner.run("Install torchlint") == 0, runner.log
    assert re.search(r"^torchlint \d+\.\d+", runner.log, re.MULTILINE)
    runner.write("train.py", SLOW)
    assert runner.run("Run torchlint") == 0, runner.log
    assert runner.outputs["lint"] == {"status": "1"}


@pytest.mark.parametrize(
    "version", ["0.1.0 --index-url=x", "-r/etc/passwd", "git+https://x", "1 @ file:///x", "$(id)", "1;id"]
)
def test_a_version_that_is_none_installs_nothing(tmp_path: Path, version: str) -> None:
    runner = Runner(tmp_path, {"version": version})
    assert runner.run("Install torchlint") == 2
    assert runner.log == "::error title=torchlint::The input version has to be a release, such as 0.1.0.\n"
    assert list((tmp_path / "temporary files").iterdir()) == []


def test_sarif_is_on_or_off(tmp_path: Path) -> None:
    runner = Runner(tmp_path, {"sarif": "yes"})
    assert runner.run("Install torchlint") == 2
    assert runner.log.startswith("::error ")


def test_findings_become_annotations_and_the_status_of_the_job(runner: Runner) -> None:
    runner.write("pkg/train.py", SLOW)
    assert runner.run("Run torchlint") == 0
    assert re.search(r"^::warning .*file=pkg/train.py,line=3,.*::.*TL201", runner.log, re.MULTILINE), runner.log
    assert runner.outputs["lint"] == {"status": "1"}
    assert runner.run("Report the result") == 1


def test_clean_code_passes(runner: Runner) -> None:
    runner.write("train.py", CLEAN)
    assert runner.run("Run torchlint") == 0
    assert runner.run("Report the result") == 0
    assert "::" not in runner.log


def test_the_report_for_code_scanning_is_there_when_the_job_fails(runner: Runner) -> None:
    runner.inputs["sarif"] = "true"
    runner.write("train.py", SLOW)
    assert runner.run("Run torchlint") == 0
    assert "::warning " in runner.log
    report = json.loads(Path(runner.outputs["lint"]["sarif-file"]).read_text(encoding="utf-8"))
    (result,) = report["runs"][0]["results"]
    assert result["ruleId"] == "TL201"
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "train.py"
    upload = next(step for step in STEPS if "uses" in step)
    assert upload["if"] == "steps.lint.outputs.sarif-file != ''"
    assert runner.run("Report the result") == 1


def test_wrong_options_fail_the_job_without_a_report(runner: Runner) -> None:
    runner.inputs |= {"sarif": "true", "args": "--selct=TL1"}
    runner.write("train.py", SLOW)
    assert runner.run("Run torchlint") == 0
    assert runner.outputs["lint"] == {"status": "2"}
    assert runner.run("Report the result") == 2


def test_arguments_and_paths_are_taken_as_they_are_written(runner: Runner) -> None:
    runner.inputs["args"] = "\n  --select=TL201   --ignore=TL1\r\n--exit-zero\n\n"
    runner.inputs["paths"] = "a b\r\n-x.py\nit's [1].py\n\n"
    for name in ("a b/train.py", "-x.py", "it's [1].py", "other.py"):
        runner.write(name, SLOW)
    assert runner.run("Run torchlint") == 0
    assert runner.outputs["lint"] == {"status": "0"}
    assert sorted(re.findall(r"file=([^,]*),", runner.log)) == ["-x.py", "a b/train.py", "it's [1].py"]


@pytest.mark.parametrize("name", ["args", "paths"])
@pytest.mark.parametrize(
    "text",
    ["$(touch pwned)", "`touch pwned`", '"; touch pwned; "', "'; touch pwned; '", "x\n$(touch pwned)", "; touch pwned"],
)
def test_inputs_run_nothing(runner: Runner, name: str, text: str) -> None:
    runner.inputs[name] = text
    runner.write("train.py", CLEAN)
    runner.run("Run torchlint")
    assert not list(runner.folder.rglob("pwned"))
    assert runner.outputs["lint"]["status"] == "2"


def test_patterns_in_arguments_are_not_expanded(runner: Runner) -> None:
    runner.inputs["args"] = "--extend-exclude=*.py *"
    runner.write("train.py", SLOW)
    assert runner.run("Run torchlint") == 0
    assert runner.outputs["lint"]["status"] == "2"
    assert "no such file or folder" in runner.log


def test_files_of_the_repository_are_not_imported(runner: Runner) -> None:
    for name in ("torchlint/__init__.py", "json.py", "sitecustomize.py", "msgspec.py"):
        runner.write(name, "open('pwned', 'w')\n")
    assert runner.run("Run torchlint") == 0
    assert runner.outputs["lint"] == {"status": "0"}, runner.log
    assert not list(runner.folder.rglob("pwned"))


# The page


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        (".github/workflows/torchlint.yml", "github-workflows"),
        (".github/workflows/torchlint-by-hand.yml", "github-workflows"),
        (".gitlab-ci.yml", "gitlab-ci"),
        ("azure-pipelines.yml", "azure-pipelines"),
    ],
)
def test_examples_are_valid(tmp_path: Path, name: str, schema: str) -> None:
    path = tmp_path / Path(name).name
    path.write_text(EXAMPLES[name], encoding="utf-8")
    validate(path, schema)


def test_the_example_for_pre_commit_names_the_hooks_that_there_are(tmp_path: Path) -> None:
    path = tmp_path / ".pre-commit-config.yaml"
    path.write_text(EXAMPLES[".pre-commit-config.yaml"], encoding="utf-8")
    command = [sys.executable, "-m", "pre_commit", "validate-config", str(path)]
    environment = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    offered = {hook["id"] for hook in yaml.safe_load((CHECKOUT / ".pre-commit-hooks.yaml").read_text())}
    assert {hook["id"] for hook in yaml.safe_load(path.read_text())["repos"][0]["hooks"]} == offered


def test_the_example_for_github_gives_inputs_that_there_are() -> None:
    workflow = yaml.safe_load(EXAMPLES[".github/workflows/torchlint.yml"])
    (step,) = (step for step in workflow["jobs"]["torchlint"]["steps"] if "with" in step)
    assert set(step["with"]) <= set(ACTION["inputs"])


@pytest.mark.parametrize("command", sorted(set(re.findall(r"(?:- |run: |script: )(torchlint .*)", PAGE))))
def test_commands_of_the_page_run(runner: Runner, command: str) -> None:
    runner.write("train.py", SLOW)
    done = subprocess.run(
        [runner.outputs["install"]["torchlint"], *shlex.split(command)[1:]],
        cwd=runner.folder / "repository",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "TL201" in done.stdout) == (1, True), done.stderr
    if "gl-code-quality-report.json" in command:
        report = json.loads((runner.folder / "repository" / "gl-code-quality-report.json").read_text())
        assert [issue["location"]["path"] for issue in report] == ["train.py"]
