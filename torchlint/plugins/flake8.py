"""torchlint as a plugin of flake8: rules appear under their codes, and `--select TL` means all of them."""

from __future__ import annotations

import multiprocessing
import re
from typing import TYPE_CHECKING, Any, ClassVar

from torchlint import __version__
from torchlint.diagnostics import is_builtin
from torchlint.plugins.project_lint import ProjectLint, rules_here

if TYPE_CHECKING:
    import argparse
    import ast
    from collections.abc import Iterator, Sequence

    from flake8.options.manager import OptionManager

    from torchlint.custom_rules import RuleSet

# flake8 says itself that a file does not parse, as E999, and then asks no plugin; the code is free for what is left.
_FAILED = "TL000"

Reported = tuple[int, int, str, type[Any]]


class Checker:
    """flake8 makes one for each file; the findings of all of them come from one run of torchlint."""

    name = "torchlint"
    version = __version__

    _rules: ClassVar[RuleSet | None] = None
    _lint: ClassVar[ProjectLint | None] = None
    _from_stdin: ClassVar[bool] = False

    def __init__(self, tree: ast.AST, filename: str, lines: Sequence[str]) -> None:
        del tree  # asking for it makes flake8 call `run` once for each file
        self._filename = filename
        self._lines = lines

    @classmethod
    def add_options(cls, manager: OptionManager) -> None:
        """Take custom rules in among what flake8 selects by default."""
        cls._rules = rules_here()
        letters = {re.sub(r"\d.*", "", code) for code in cls._rules if not is_builtin(code)}
        manager.extend_default_select(sorted(letters))

    @classmethod
    def parse_options(cls, _manager: OptionManager, options: argparse.Namespace, _names: list[str]) -> None:
        """Lint what flake8 was asked to lint. Workers that fork off later have the findings in their memory."""
        rules = cls._rules if cls._rules is not None else rules_here()
        cls._lint, cls._from_stdin = None, options.filenames == ["-"]
        if options.bug_report or not _selects_any(options, rules):
            return
        cls._lint = ProjectLint(rules, _selected_by_code(options, rules), _jobs(options))
        if not cls._from_stdin:
            cls._lint.lint(options.filenames or ["."])

    def run(self) -> Iterator[Reported]:
        """The findings in the file: row, column (from 0), text, and who says so."""
        if self._lint is None:
            return
        if self._from_stdin:
            found = self._lint.findings_in(self._filename, "".join(self._lines).encode())
        else:
            found = self._lint.findings(self._filename)
        for finding in found:
            text = f"{finding.code} {finding.message}"
            yield finding.location.row, finding.location.column - 1, text, type(self)
        for problem in self._lint.problems(self._filename):
            yield 1, 0, f"{_FAILED} torchlint could not do its work: {problem}", type(self)


def _selects_any(options: argparse.Namespace, rules: RuleSet) -> bool:
    """Whether flake8's `select` leaves anything for us to do."""
    selectors = [*(options.select or ()), *(options.extend_select or ())]
    return not options.select or any(code.startswith(selector) for code in rules for selector in selectors)


def _selected_by_code(options: argparse.Namespace, rules: RuleSet) -> list[str]:
    """The opt-in rules that flake8's options name by their whole code: `TL` alone means those on by default."""
    selectors = {*(options.select or ()), *(options.extend_select or ())}
    return [code for code, rule in rules.items() if not rule.default and code in selectors]


def _jobs(options: argparse.Namespace) -> int | None:
    """The number of processes that flake8 was given, None where it decides by the number of processors."""
    if multiprocessing.current_process().daemon:
        return 1  # a worker of flake8 may not start processes of its own
    wanted: int = options.jobs.n_jobs
    return wanted if wanted > 0 else None
