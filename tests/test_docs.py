"""What the documents say is what the tool does."""

from __future__ import annotations

import importlib.util
import re
import runpy
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from command_line import CommandLine

from torchlint import Rule, __version__, all_rules, cli
from torchlint.config import KEYS, Config, read_config
from torchlint.engine import check_module
from torchlint.semantics import Module, ProjectLayout, link
from torchlint.source import SourceFile
from torchlint.toml import parse_toml

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
HEADINGS = ["What it finds", "Why it costs", "Example", "Use instead", "When it is fine", "Fix safety"]

_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][a-z-]*(?![\w-])")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


def blocks(document: str, language: str, *, below: str = "") -> list[str]:
    """The code blocks of a language, after the first line that is `below`."""
    start = document.index(f"\n{below}\n") if below else 0
    return [found["text"] for found in _BLOCK.finditer(document, start) if found["language"] == language]


def table(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading of the README, without its header."""
    lines = README[README.index(f"\n{heading}\n") :].split("\n")
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Rules


def test_generated_documents_are_current() -> None:
    files: dict[Path, str] = generator().generated()
    assert sorted((ROOT / "docs" / "rules").glob("*.md")) == sorted(p for p in files if p.parent.name == "rules")
    stale = [path.name for path, text in files.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run `python docs/generate.py`"


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_page_has_the_headings_in_order(rule: type[Rule]) -> None:
    prose = _BLOCK.sub("", rule.page())
    assert re.findall(r"^## (.*)$", prose, re.MULTILINE) == HEADINGS
    assert all(text.strip() for text in re.split(r"^## .*$", rule.page(), flags=re.MULTILINE))


# README


def test_the_example_is_reported_and_repaired_as_shown(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    heading = "## Before and after"
    (tmp_path / "train.py").write_text(blocks(README, "python", below=heading)[0], encoding="utf-8")
    report = run("train.py").out
    for finding in blocks(README, "text", below=heading)[0].strip().split("\n\n"):
        assert finding in report
    assert "six things" in README
    assert "Found 6 issues" in report
    assert run("--diff", "--unsafe-fixes", "--quiet", "train.py").out == blocks(README, "diff")[0]


def test_the_first_command_lints_the_fixtures(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command = blocks(README, "bash", below="## Try it")[0]
    installing, _, linting = command.strip().rpartition(" && .venv/bin/torchlint ")
    assert installing == "python3 -m venv .venv && .venv/bin/pip install -q ."
    completed = run(*linting.split(), "--no-cache")
    assert completed.status == 0, completed.err
    found = re.findall(r"^fixtures/(tl\d+)_\w+/(\w+)\.py:\d+:\d+: (TL\d+) ", completed.out, re.MULTILINE)
    assert found
    assert not [finding for finding in found if finding[1] == "good" and finding[0].upper() == finding[2]]
    assert completed.out.splitlines()[-1].startswith("Found ")


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = blocks(README, "bash", below="## Try it")[1].strip()
    assert f"\n{command} || exit\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert command in CONTRIBUTING


def test_readme_and_command_line_have_the_same_options(run: CommandLine) -> None:
    known = set(_OPTION.findall(run("--help").out))
    rows = [row[0] for row in table("## Use")]
    listed = {option for row in rows for option in _OPTION.findall(row)}
    # The other half of a switch is listed where somebody would need it.
    assert known - listed <= {"--no-unsafe-fixes"}
    assert listed <= known
    rest = README[README.index("## Use") :].replace(blocks(README, "bash")[0], "")
    assert set(_OPTION.findall(rest)) <= known


def test_readme_names_every_verb_and_no_other() -> None:
    lines = blocks(README, "text", below="## Use")[0].split("\n")
    named = {found[1] for line in lines if (found := re.match(r"torchlint ([a-z]+)(?= {2,}| TL| \w+\.py| bash)", line))}
    assert {*named, "check"} == set(cli.VERBS)


def test_readme_and_configuration_have_the_same_keys() -> None:
    rows = table("## Configuration")
    assert [row[0].strip("`") for row in rows] == list(KEYS)
    for key, default, _ in rows:
        written = None if default == "not set" else parse_toml(f"x = {default.strip('`')}")["x"]
        field = next(field for field in msgspec.structs.fields(Config) if field.encode_name == key.strip("`"))
        assert msgspec.json.decode(msgspec.json.encode(getattr(Config(), field.name))) == written, key


def test_the_configuration_of_the_readme_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(blocks(README, "toml")[0], encoding="utf-8")
    config = read_config(path)
    assert config is not None
    assert config.keys >= {"extend-exclude", "target-torch", "per-file-ignores"}


def test_the_suppressions_of_the_readme_silence(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = blocks(README, "python", below="## Suppressions")[0]
    lines = textwrap.indent(re.sub(r"until=\S+", "", example), " " * 8)
    head = "import torch\n\ndef act(policy: torch.nn.Module, loader, device, n):\n    for state in loader:\n"
    step = "        scores = policy(state.to(device))\n"
    (tmp_path / "act.py").write_text(head + step + lines, encoding="utf-8")
    assert run("--fail-on", "info", "act.py").status == 0
    (tmp_path / "act.py").write_text(head + step + re.sub("#.*", "", lines), encoding="utf-8")
    assert re.findall(r": (TL\d+) ", run("--output-format", "concise", "act.py").out) == ["TL101", "TL101", "TL201"]


# The other documents


def test_the_changelog_knows_the_version() -> None:
    project = parse_toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert project["version"] == __version__
    assert re.search(rf"^## \[{re.escape(__version__)}\] - (unreleased|\d{{4}}-\d\d-\d\d)$", changelog, re.MULTILINE)


def test_the_walk_through_makes_a_rule(tmp_path: Path) -> None:
    bad, good, code = blocks(CONTRIBUTING, "python", below="### 1. Say what it should find")
    path = tmp_path / "tl108_clip_raises_on_nonfinite.py"
    path.write_text(code, encoding="utf-8")
    rule: type[Rule] = runpy.run_path(str(path))["ClipRaisesOnNonfinite"]
    for text in (bad, good):
        expected = [n for n, line in enumerate(text.split("\n"), 1) if line.endswith(f"# expect: {rule.code}")]
        source = SourceFile.from_text(tmp_path / "code.py", text)
        module = Module(source, source.parse(), ProjectLayout(tmp_path, ["code.py"]), "code.py")
        for _ in range(2):
            module.attach(link(module.layout, {"code.py": module.summary()})["code.py"])
        findings = check_module(module, [rule.code], {rule.code: rule}).findings
        assert [finding.node.lineno for finding in findings] == expected
        assert all(finding.fix is not None and finding.fix.build() for finding in findings)


@pytest.mark.parametrize(
    "path", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_architecture_names_every_module() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    modules = [*(ROOT / "torchlint").glob("*.py"), *(ROOT / "torchlint").glob("*/*.py")]
    unnamed = [
        path.relative_to(ROOT).as_posix()
        for path in modules
        if not path.name.startswith(("_", "layers_")) and path.parent.name != "reports" and f"{path.name}`" not in page
    ]
    assert unnamed == []


# The package


def test_every_package_is_installed() -> None:
    listed = parse_toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    folders = {"torchlint": ROOT / "torchlint"}
    folders |= {f"torchlint.{name}": ROOT / name for name in ("rules", "fixtures", "runtime_verify")}
    found = {
        ".".join([package, *init.parent.relative_to(folder).parts])
        for package, folder in folders.items()
        for init in folder.rglob("__init__.py")
    }
    assert set(listed) == found
