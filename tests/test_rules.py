"""Every rule against its fixtures: what it finds and leaves alone, what its fixes leave behind, what its page says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tokenize
from pathlib import Path

import pytest
from command_line import CommandLine

from torchlint.rule import Rule, Safety, all_rules

FIXTURES = Path(__file__).parent.parent / "fixtures"
MARK = re.compile(r"#\s*expect:\s*(TL\d{3}(?:\s*,\s*TL\d{3})*)")
HEADINGS = ["What it finds", "Why it costs", "Example", "Use instead", "When it is fine", "Fix safety"]
CORE = ["TL101", "TL201", "TL203", "TL301", "TL401", "TL405", "TL501", "TL502"]
RULES = [pytest.param(rule, id=rule.code) for rule in all_rules()]
# The code that is judged; a suppression is unused only beside all other rules.
SELECTED = {rule.code: "ALL" if rule.code == "TL001" else rule.code for rule in all_rules()}

# TL000's example does not parse, and TL001's suppressions silence what its lines are marked with.
JUDGED_BY_ALL = [
    pytest.param(path, id=f"{path.parent.name}/{path.name}")
    for name in ("bad.py", "good.py")
    for path in sorted(FIXTURES.rglob(name))
    if not path.parent.name.startswith(("tl000", "tl001"))
]


@pytest.fixture
def torchlint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys)


def fixture(rule: type[Rule], name: str) -> Path:
    return FIXTURES / f"{rule.code.lower()}_{rule.name.replace('-', '_')}" / name


def marks(path: Path, code: str) -> list[int]:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        mark = MARK.search(line)
        if mark and code in re.split(r"\s*,\s*", mark.group(1)):
            found.append(number)
    return found


def comments(path: Path) -> list[str]:
    with path.open("rb") as file:
        return [token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]


def lines(torchlint: CommandLine, code: str, path: Path) -> list[int]:
    run = torchlint("--isolated", "--no-cache", "--select", SELECTED[code], "--output-format", "json", path)
    assert run.err == ""
    return [row["location"]["row"] for row in json.loads(run.out) if row["code"] == code]


@pytest.mark.parametrize("rule", RULES)
def test_marked_lines_are_found_and_no_others(rule: type[Rule], torchlint: CommandLine, tmp_path: Path) -> None:
    path = Path(shutil.copy(fixture(rule, "bad.py"), tmp_path))
    expected = marks(path, rule.code)
    assert expected
    assert lines(torchlint, rule.code, path) == expected


@pytest.mark.parametrize("rule", RULES)
def test_near_misses_stay_silent(rule: type[Rule], torchlint: CommandLine, tmp_path: Path) -> None:
    path = Path(shutil.copy(fixture(rule, "good.py"), tmp_path))
    assert not marks(path, rule.code)
    assert lines(torchlint, rule.code, path) == []


@pytest.mark.parametrize("rule", RULES)
def test_fixes_leave_the_exact_text_and_a_second_run_changes_nothing(
    rule: type[Rule], torchlint: CommandLine, tmp_path: Path
) -> None:
    path = Path(shutil.copy(fixture(rule, "bad.py"), tmp_path))
    options = ("--isolated", "--no-cache", "--select", SELECTED[rule.code], "--fix", "--unsafe-fixes", "--quiet", path)
    for _ in range(2):
        torchlint(*options)
        assert path.read_text(encoding="utf-8") == fixture(rule, "fixed.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.id not in ("TL000", "TL001")])
def test_fixes_lose_no_comment(rule: type[Rule]) -> None:
    assert comments(fixture(rule, "fixed.py")) == comments(fixture(rule, "bad.py"))


@pytest.mark.parametrize("path", JUDGED_BY_ALL)
def test_marks_are_right_for_all_core_rules(path: Path, torchlint: CommandLine, tmp_path: Path) -> None:
    copy = Path(shutil.copy(path, tmp_path))
    run = torchlint("--isolated", "--no-cache", "--select", ",".join(CORE), "--output-format", "json", copy)
    found = {(row["location"]["row"], row["code"]) for row in json.loads(run.out)}
    assert found == {(number, code) for code in CORE for number in marks(path, code)}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_fixes_shows_it_in_its_fixture(rule: type[Rule]) -> None:
    changed = fixture(rule, "bad.py").read_bytes() != fixture(rule, "fixed.py").read_bytes()
    assert changed == (rule.fixable is not None)


@pytest.mark.parametrize("rule", RULES)
def test_screening_never_changes_the_result(
    rule: type[Rule], torchlint: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bad.py", "good.py"):
        for path in sorted(FIXTURES.rglob(name)):
            copy = Path(shutil.copy(path, tmp_path))
            screened = lines(torchlint, rule.code, copy)
            with monkeypatch.context() as context:
                context.setattr(rule, "screen", ())
                assert lines(torchlint, rule.code, copy) == screened


@pytest.mark.parametrize("rule", RULES)
def test_a_page_has_its_headings_in_order(rule: type[Rule]) -> None:
    assert re.findall(r"^## (.+)$", rule.page(), re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_knows_no_other_rule(rule: type[Rule]) -> None:
    source = Path(sys.modules[rule.__module__].__file__ or "").read_text(encoding="utf-8")
    code = source.replace(rule.__doc__ or "", "")
    assert set(re.findall(r"TL\d{3}", code)) <= {rule.code}
    assert "torchlint.rules" not in code


def test_the_core_rules_exist() -> None:
    codes = [rule.code for rule in all_rules()]
    assert codes == sorted(codes)
    assert set(CORE) <= set(codes)
    assert all(isinstance(rule.fixable, Safety | None) for rule in all_rules())


def fixed(torchlint: CommandLine, path: Path, text: str, *options: str) -> str:
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    torchlint("--isolated", "--no-cache", *options, "--fix", "--unsafe-fixes", "--quiet", path)
    return path.read_text(encoding="utf-8")


ZEROED = """\
    import torch


    def step(optimizer: torch.optim.Optimizer, options):
        optimizer.zero_grad()
        optimizer.zero_grad(False)
        optimizer.zero_grad(set_to_none=False)  # kept
        optimizer.zero_grad(set_to_none=True)
        optimizer.zero_grad(**options)
    """


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        ("2.0", ["", "", "", "set_to_none=True"]),
        ("1.13", ["set_to_none=True", "True", "set_to_none=True", "set_to_none=True"]),
    ],
)
def test_what_zero_grad_is_told_depends_on_the_target_torch(
    target: str, arguments: list[str], torchlint: CommandLine, tmp_path: Path
) -> None:
    text = fixed(torchlint, tmp_path / "code.py", ZEROED, "--select", "TL405", "--target-torch", target)
    assert re.findall(r"zero_grad\((.*)\)", text) == [*arguments, "**options"]
    assert "  # kept\n" in text


def test_the_workers_that_a_loader_gets_are_configured(torchlint: CommandLine, tmp_path: Path) -> None:
    text = """\
        from torch.utils.data import DataLoader
        from torchvision.datasets import ImageFolder

        loader = DataLoader(ImageFolder("photos"), batch_size=8)
        """
    done = fixed(torchlint, tmp_path / "code.py", text, "--select", "TL301", "--dataloader-workers", "11")
    assert done.endswith('DataLoader(ImageFolder("photos"), batch_size=8, num_workers=11)\n')


@pytest.mark.parametrize(("moved", "expected"), [("x", []), ("x.to(device)", [8])])
def test_reading_costs_nothing_where_no_device_is_named(
    moved: str, expected: list[int], torchlint: CommandLine, tmp_path: Path
) -> None:
    text = f"""\
        from torch import nn


        def train(model: nn.Module, loader, device, log):
            for x in loader:
                loss = model({moved}).mean()
                loss.backward()
                log(loss.item())
        """
    path = tmp_path / "code.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    assert lines(torchlint, "TL101", path) == expected


TRAIN = """\
import torch
from helpers import Net, log, evaluate


def main(loader, device):
    net = Net().to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in loader:
        loss = net(x.to(device)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        log(loss)
    with torch.no_grad():
        return evaluate(net, loader)
"""
HELPERS = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x))


def log(loss):
    text = "loss"
    print(text, loss.item())


def evaluate(net, loader):
    return [net(x) for x in loader]
"""
OTHER = """\
import torch


def f(n, device):
    return torch.zeros(n).to(device)
"""
PROJECT = {"train.py": TRAIN, "helpers.py": HELPERS, "other.py": OTHER}


def findings(folder: Path, *arguments: str, seed: str = "0") -> list[tuple[str, int, int, str]]:
    done = subprocess.run(
        [sys.executable, "-m", "torchlint", "--isolated", "--no-cache", "--output-format", "json", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    rows = json.loads(done.stdout)
    return [(Path(r["filename"]).name, r["location"]["row"], r["location"]["column"], r["code"]) for r in rows]


def test_findings_are_the_same_for_any_hash_seed_process_count_and_file_order(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\n")
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text)
    expected = findings(tmp_path, ".")
    assert [(name, code) for name, _, _, code in expected] == [
        ("helpers.py", "TL501"),
        ("helpers.py", "TL101"),
        ("other.py", "TL201"),
    ]
    for seed, jobs in (("1", "1"), ("2", "2"), ("3", "3")):
        assert findings(tmp_path, "--jobs", jobs, ".", seed=seed) == expected
    assert findings(tmp_path, "train.py", "other.py", "helpers.py") == expected
    assert findings(tmp_path, "helpers.py") == [row for row in expected if row[0] == "helpers.py"]
