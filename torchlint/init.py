"""`torchlint init`: a commented configuration for a project, after a look at it."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.cache import Cache
from torchlint.config import ConfigError, ConfigFinder, overrides_from, read_config
from torchlint.custom_rules import load_rules
from torchlint.discovery import Discovery, Project
from torchlint.planning import Planner
from torchlint.reports.output import visible
from torchlint.reports.summary import counted
from torchlint.rule import Level
from torchlint.runner import Run
from torchlint.torch_target import find_target_torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchlint.custom_rules import RuleSet
    from torchlint.rule import Rule

PRESETS = {
    "warnings": "only what fails a run",
    "default": "all rules that are on by default",
    "all": "every rule, the opt-in ones too",
}

# What a file's text says about the project. The words stand in imports and calls that the frameworks document.
_FRAMEWORKS = {
    "Lightning": re.compile(rb"^\s*(?:import|from)\s+(?:pytorch_lightning|lightning)\b", re.MULTILINE),
    "Accelerate": re.compile(rb"^\s*(?:import|from)\s+accelerate\b", re.MULTILINE),
    "Ignite": re.compile(rb"^\s*(?:import|from)\s+ignite\b", re.MULTILINE),
}
_DEVICES = {
    "cuda": re.compile(rb"\.cuda\(|[\"']cuda(?::\d+)?[\"']|torch\.cuda\b"),
    "mps": re.compile(rb"[\"']mps[\"']|torch\.(?:backends\.)?mps\b"),
    "xpu": re.compile(rb"[\"']xpu[\"']|torch\.xpu\b"),
}
_DISTRIBUTED = re.compile(rb"DistributedDataParallel|init_process_group|\bFSDP\b|fully_shard")


@dataclass(frozen=True)
class Look:
    """What the project looks like: the oldest torch that it supports and where that is said, and how many of its files
    use a framework, a kind of device, or several processes.
    """

    files: int
    target: tuple[int, int]
    target_origin: str
    frameworks: Mapping[str, int]
    devices: Mapping[str, int]
    distributed: int


def main(arguments: list[str]) -> int:
    """Run the verb and return the exit status. Raises ConfigError where there is a configuration already."""
    options = init_parser().parse_args(arguments)
    folder = Path(os.path.abspath(options.folder))
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder: check the spelling of the path")
    target = _place(folder)
    rules = load_rules()
    project = _project(folder)
    look = _look(project, folder)
    counts = _counts(project, rules)
    _show(look, counts, rules)
    preset = options.preset or _asked() or "default"
    text = _configuration(look, preset, counts, rules, target.name)
    if options.dry_run:
        print(f"\n{visible(str(target))} would get:\n\n{text}", end="")
        return 0
    _write(target, text)
    print(f"\nWrote {visible(str(target))}.")
    return 0


def init_parser() -> argparse.ArgumentParser:
    """The options of `torchlint init`."""
    parser = argparse.ArgumentParser(
        prog="torchlint init", description="Write a configuration that fits the project.", allow_abbrev=False
    )
    parser.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="the project (default: this folder)")
    parser.add_argument("--preset", choices=tuple(PRESETS), help="the rules to start with (default: asks, or default)")
    parser.add_argument("--dry-run", action="store_true", help="show the configuration and write nothing")
    return parser


def _place(folder: Path) -> Path:
    """The file to write: pyproject.toml where there is one, else torchlint.toml."""
    own, shared = folder / "torchlint.toml", folder / "pyproject.toml"
    if own.exists():
        raise ConfigError(f"{own}: is there already; delete it to start anew")
    if not shared.is_file():
        return own
    # A broken file, and one that has our table, raise here, before anything is done.
    if read_config(shared, required=False) is not None:
        raise ConfigError(f"{shared}: has a [tool.torchlint] table already; delete it to start anew")
    return shared


def _project(folder: Path) -> Project:
    configs = ConfigFinder(overrides_from({}, folder), isolated=True)
    projects = Discovery(configs).projects([str(folder)])
    return projects[0] if projects else Project(str(folder), (), ())


def _look(project: Project, folder: Path) -> Look:
    frameworks: Counter[str] = Counter()
    devices: Counter[str] = Counter()
    distributed = 0
    for path in project.targets:
        try:
            data = Path(path).read_bytes()
        except OSError:
            continue
        frameworks.update(name for name, pattern in _FRAMEWORKS.items() if pattern.search(data))
        devices.update(name for name, pattern in _DEVICES.items() if pattern.search(data))
        distributed += _DISTRIBUTED.search(data) is not None
    target, origin = find_target_torch(folder, Path(project.root))
    return Look(len(project.targets), target, origin, frameworks, devices, distributed)


def _counts(project: Project, rules: RuleSet) -> Counter[str]:
    """How often each rule finds something, suppressed findings aside."""
    configs = ConfigFinder(overrides_from({"select": ["ALL"]}, Path(project.root)), isolated=True)
    planner = Planner(configs, rules, "check", build_edits=False)
    reports = Run(project, list(planner.plans(project)), rules, cache=Cache(None, project.root)).reports()
    return Counter(finding.code for report in reports for finding in report.findings)


def _chosen(preset: str, rules: RuleSet) -> list[type[Rule]]:
    """The rules of a preset."""
    if preset == "all":
        return list(rules.values())
    on = [rule for rule in rules.values() if rule.default]
    return [rule for rule in on if rule.level is Level.WARNING] if preset == "warnings" else on


def _show(look: Look, counts: Mapping[str, int], rules: RuleSet) -> None:
    for line in _facts(look):
        print(visible(line))
    print("\nPresets, and how many findings each gives now:")
    for preset, meaning in PRESETS.items():
        chosen = _chosen(preset, rules)
        found = sum(counts[rule.code] for rule in chosen)
        print(f"  {preset:<9} {found:>6}  {meaning} ({len(chosen)} rules)")


def _facts(look: Look) -> list[str]:
    def listed(found: Mapping[str, int], nothing: str) -> str:
        ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(f"{name} ({counted(count, 'file')})" for name, count in ordered) or nothing

    return [
        f"Python files and notebooks: {look.files}",
        f"oldest torch: {look.target[0]}.{look.target[1]} ({look.target_origin})",
        f"framework: {listed(look.frameworks, 'plain PyTorch')}",
        f"devices: {listed(look.devices, 'none named in the code')}",
        f"several processes: {counted(look.distributed, 'file') if look.distributed else 'no'}",
    ]


def _asked() -> str | None:
    """The preset that somebody at a terminal chooses; None where there is nobody to ask."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    while True:
        try:
            answer = input(f"\nWhich preset? {'/'.join(PRESETS)} [default] ").strip().lower()
        except EOFError:
            return None
        if answer in ("", *PRESETS):
            return answer or None


def _configuration(look: Look, preset: str, counts: Mapping[str, int], rules: RuleSet, name: str) -> str:
    """The text of the configuration, a table of its own in a pyproject.toml."""
    lines = ["[tool.torchlint]"] if name == "pyproject.toml" else []
    lines += [f"# {_comment(fact)}" for fact in _facts(look)]
    lines += ["", *_selection(preset, counts, rules), ""]
    version = f'"{look.target[0]}.{look.target[1]}"'
    if look.target_origin == "default":
        lines += ["# The oldest torch that the code supports: fixes use nothing newer.", f"target-torch = {version}"]
    else:
        lines += [
            "# The oldest torch that the code supports comes from the requirements; this would overrule them.",
            f"# target-torch = {version}",
        ]
    lines += [
        "",
        "# What to leave out, beside what .gitignore names.",
        '# extend-exclude = ["third_party"]',
        "",
        "# Rules that do not matter in some files.",
        '# per-file-ignores = { "tests/**" = ["ALL"] }',
        "",
        "# The least level that fails a run: warning or info.",
        'fail-on = "warning"',
    ]
    return "\n".join(lines) + "\n"


def _selection(preset: str, counts: Mapping[str, int], rules: RuleSet) -> list[str]:
    """The lines that select the preset's rules, and say what they find today."""
    found = [f"{rule.code} {rule.name}: {counts[rule.code]}" for rule in _chosen(preset, rules) if counts[rule.code]]
    lines = [f"# Preset {preset}: {PRESETS[preset]}. Findings on the day that this was written:"]
    lines += [f"#   {entry}" for entry in found] or ["#   none"]
    if preset == "all":
        return [*lines, 'select = ["ALL"]']
    if preset == "warnings":
        infos = [rule.code for rule in rules.values() if rule.default and rule.level is not Level.WARNING]
        return [*lines, f"ignore = [{', '.join(f'{chr(34)}{code}{chr(34)}' for code in infos)}]"]
    return [*lines, '# select = ["ALL"]  # the opt-in rules too']


def _comment(text: str) -> str:
    """A fact for a TOML comment, which may hold no control characters."""
    return visible(" ".join(text.split()))


def _write(target: Path, text: str) -> None:
    """Create the file, or append to it: what it holds stays as it is, byte for byte."""
    try:
        if not target.exists():
            target.write_text(text, encoding="utf-8", newline="\n")
            return
        before = target.read_bytes()
        newline = b"\r\n" if b"\r\n" in before else b"\n"
        gap = b"" if not before.strip() else newline if before.endswith(b"\n") else newline * 2
        with target.open("ab") as file:
            file.write(gap + text.encode().replace(b"\n", newline))
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror or error}") from error
