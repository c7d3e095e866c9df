"""`torchlint rules` lists the rules; `torchlint rule TL101` shows one rule's documentation page."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.arguments import add_allow_plugins
from torchlint.config import ConfigError, ConfigFinder, did_you_mean, overrides_from
from torchlint.custom_rules import load_rules
from torchlint.reports.output import visible

if TYPE_CHECKING:
    from torchlint.custom_rules import RuleSet
    from torchlint.engine import Registry
    from torchlint.rule import Rule


def main(verb: str, arguments: list[str]) -> int:
    """Run one of the two verbs and return the exit status."""
    if verb == "rules":
        options = rules_parser().parse_args(arguments)
        rules = _load(options.allow_plugins)
        status = _list(rules)
    else:
        options = rule_parser().parse_args(arguments)
        rules = _load(options.allow_plugins)
        status = _show(_find(options.rule, rules))
    return 2 if rules.problems else status


def rules_parser() -> argparse.ArgumentParser:
    """The options of `torchlint rules`."""
    parser = argparse.ArgumentParser(prog="torchlint rules", description="List all rules.", allow_abbrev=False)
    add_allow_plugins(parser)
    return parser


def rule_parser() -> argparse.ArgumentParser:
    """The options of `torchlint rule`."""
    parser = argparse.ArgumentParser(prog="torchlint rule", description="Explain a rule.", allow_abbrev=False)
    parser.add_argument("rule", metavar="RULE", help="its code (TL101) or its name (sync-in-loop)")
    add_allow_plugins(parser)
    return parser


def _load(allow_plugins: bool) -> RuleSet:
    """The rules that the configuration of the current folder knows; messages about plugins go to stderr."""
    finder = ConfigFinder(overrides_from({}, Path.cwd()))
    finder.for_folder(Path.cwd())
    rules = load_rules(finder.files, allow_plugins)
    for message in (*rules.problems, *rules.warnings):
        kind = "error" if message in rules.problems else "warning"
        print(f"{kind}: {visible(message)}", file=sys.stderr)
    return rules


def _list(registry: Registry) -> int:
    header = ("code", "name", "level", "fix", "default", "what it finds")
    rows = [_row(rule) for rule in registry.values()]
    if _is_styled():
        from rich.console import Console
        from rich.table import Table

        table = Table(*header, box=None, header_style="bold", pad_edge=False)
        for row in rows:
            table.add_row(*row)
        Console(markup=False).print(table)
        return 0
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header) - 1)]
    for row in (header, *rows):
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[-1]]))
    return 0


def _row(rule: type[Rule]) -> tuple[str, str, str, str, str, str]:
    fix = rule.fixable.value if rule.fixable else "-"
    return rule.code, rule.name, rule.level.value, fix, "on" if rule.default else "opt-in", _first_sentence(rule)


def _first_sentence(rule: type[Rule]) -> str:
    """The first paragraph of the page, on one line."""
    return " ".join(rule.page().split("\n\n")[0].split())


def _find(wanted: str, registry: Registry) -> type[Rule]:
    for rule in registry.values():
        if wanted.upper() == rule.code or wanted.lower() == rule.name:
            return rule
    known = [*registry, *(rule.name for rule in registry.values())]
    spelled = wanted.upper() if wanted.upper().startswith("TL") else wanted.lower()
    raise ConfigError(f"there is no rule {wanted!r}{did_you_mean(spelled, known)}; `torchlint rules` lists them all")


def _show(rule: type[Rule]) -> int:
    from torchlint.runtime_verify.page_section import section

    fix = f"{rule.fixable.value} fix" if rule.fixable else "no fix"
    default = "on by default" if rule.default else "opt-in"
    text = f"# {rule.code} {rule.name}\n\n*{rule.level.value} · {fix} · {default} · {rule.family()}*\n\n{rule.page()}\n"
    if measured := section(rule.code):
        text += f"\n{measured}"
    if _is_styled():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        print(text, end="")
    return 0


def _is_styled() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
