"""`torchlint config`: the settings in force for a path, and where each comes from."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from torchlint.arguments import add_settings, configs_from
from torchlint.config import KEYS, ConfigError, Resolved
from torchlint.custom_rules import RuleSet, load_rules
from torchlint.discovery import project_root
from torchlint.reports.output import visible
from torchlint.selection import codes_for_file, selected_codes
from torchlint.torch_target import find_target_torch


def main(arguments: list[str]) -> int:
    """Run the verb and return the exit status."""
    options = config_parser().parse_args(arguments)
    configs = configs_from(options)
    path = os.path.abspath(options.path)
    if not os.path.exists(path):
        raise ConfigError(f"{path}: no such file or folder: check the spelling of the path")
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    resolved = configs.for_folder(Path(folder))
    if configs.problems:
        raise ConfigError(configs.problems[0])
    rules = load_rules(configs.files, options.allow_plugins)
    for message in (*rules.problems, *rules.warnings):
        print(visible(message), file=sys.stderr)
    for line in _lines(resolved, path, folder, rules):
        print(visible(line))
    return 2 if rules.problems else 0


def config_parser() -> argparse.ArgumentParser:
    """The options of `torchlint config`."""
    parser = argparse.ArgumentParser(
        prog="torchlint config", description="Show the settings in force for a path.", allow_abbrev=False
    )
    parser.add_argument(
        "path", nargs="?", default=".", metavar="PATH", help="a file or folder (default: the current one)"
    )
    parser.add_argument("--unsafe-fixes", action=argparse.BooleanOptionalAction, default=None, help=argparse.SUPPRESS)
    add_settings(parser)
    return parser


def _lines(resolved: Resolved, path: str, folder: str, rules: RuleSet) -> list[str]:
    registry = rules.known_to(resolved.file)
    root = project_root(path)[0]
    codes = codes_for_file(resolved, selected_codes(resolved, registry), path, registry)
    lines = [
        f"path: {path}",
        f"project: {root}",
        f"configuration file: {resolved.file.path if resolved.file else 'none'}",
        "",
    ]
    for key in KEYS:
        if key == "target-torch" and resolved.target_torch is None:
            (major, minor), origin = find_target_torch(Path(folder), Path(root))
            lines.append(f"target-torch = {major}.{minor}  ({origin})")
        else:
            lines.append(f"{key} = {_shown(resolved.value(key))}  ({resolved.origin(key)})")
    off = sorted(set(registry) - codes)
    return [*lines, "", f"rules on: {', '.join(sorted(codes))}", f"rules off: {', '.join(off) or 'none'}"]


def _shown(value: object) -> str:
    """A value as TOML writes it."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {_shown(item)}' for key, item in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return str(value)
