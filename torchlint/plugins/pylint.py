"""torchlint as a plugin of pylint: `load-plugins=torchlint.plugins.pylint`.

Every rule is a message with the rule's name. Its id is a letter for the level (`W` for a warning, `R` for an info), the
digit 7 and the digits of the rule's code: TL101 is W7101. pylint keeps ids below 5000 for itself; docs/pylint.md lists
who else uses 7000 to 7999.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pylint.checkers import BaseRawFileChecker

from torchlint.diagnostics import is_builtin
from torchlint.discovery import project_root
from torchlint.plugins.project_lint import ProjectLint, rules_here
from torchlint.rule import Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from astroid import nodes
    from pylint.lint import PyLinter

    from torchlint.custom_rules import RuleSet
    from torchlint.diagnostics import Diagnostic
    from torchlint.rule import Rule

FAILED = "torchlint-error"
_FAILED_ID = "F7000"
# pylint says itself, and first, that a file does not parse.
_PYLINTS_OWN = frozenset({"TL000"})
_CUSTOM = 7800
_RUN = "torchlint_run"


def register(linter: PyLinter) -> None:
    """Register a checker for each family of rules; pylint calls this in every process."""
    # pylint registers plugins again in its workers; what the first process found is on the linter that they got.
    run: _Run | None = getattr(linter, _RUN, None)
    if run is None:
        run = _Run(linter, rules_here())
        setattr(linter, _RUN, run)
    for messages in _families(run.rules):
        linter.register_checker(_Checker(linter, run, messages))


def message_ids(rules: RuleSet) -> dict[str, str]:
    """The id of each rule's message, by code. Custom rules get theirs in the order of their codes, from 7800 on."""
    ids = {}
    custom = _CUSTOM
    for code, rule in sorted(rules.items()):
        if code in _PYLINTS_OWN:
            continue
        letter = "W" if rule.level is Level.WARNING else "R"
        if is_builtin(code):
            ids[code] = f"{letter}7{code[2:]}"
        else:
            ids[code] = f"{letter}{custom}"
            custom += 1
    return ids


class _Run:
    """torchlint's part in one run of pylint."""

    def __init__(self, linter: PyLinter, rules: RuleSet) -> None:
        self.rules = rules
        self._linter = linter
        self._lint: ProjectLint | None = None
        self._reported: nodes.Module | None = None

    def __getstate__(self) -> dict[str, Any]:
        # pylint pickles its linter when it knows what to lint and is about to start workers: now is the time to lint,
        # once for all of them.
        if self._files() and any(map(self._linter.is_message_enabled, message_ids(self.rules).values())):
            self._linted()
        return self.__dict__.copy()

    def findings(self, module: nodes.Module) -> tuple[Diagnostic, ...]:
        """torchlint's findings in a module, for the first checker that asks: it reports them all, in order."""
        if module is self._reported:
            return ()
        self._reported = module
        if self._linter.config.from_stdin:
            with module.stream() as stream:
                return self._linted().findings_in(module.file, stream.read())
        return self._linted().findings(module.file)

    def problems(self, module: nodes.Module) -> tuple[str, ...]:
        """What torchlint failed to do."""
        return self._linted().problems(module.file)

    def _linted(self) -> ProjectLint:
        if self._lint is None:
            config = self._linter.config
            self._lint = ProjectLint(self.rules, self._enabled_by_name(), max(config.jobs, 1))
            if not config.from_stdin:
                self._lint.lint(self._files())
        return self._lint

    def _files(self) -> Sequence[str]:
        """What pylint was asked to lint. Before version 4.1 it does not tell plugins: then all of the project."""
        files: Sequence[str] | None = getattr(self._linter.config, "files", None)
        if files is not None:
            return files
        root, is_marked = project_root(os.getcwd())
        return [root] if is_marked else []

    def _enabled_by_name(self) -> list[str]:
        """The codes of opt-in rules that pylint's options enable."""
        enabled = set(self._linter.config.enable or ())
        ids = message_ids(self.rules)
        opt_in = [rule for rule in self.rules.values() if not rule.default and rule.code in ids]
        return [rule.code for rule in opt_in if enabled & {"all", rule.name, ids[rule.code]}]


class _Checker(BaseRawFileChecker):
    """Reports the findings of the rules whose messages share an id but for its last two digits, as pylint wants it."""

    name = "torchlint"

    def __init__(self, linter: PyLinter, run: _Run, messages: Mapping[str, Any]) -> None:
        self.msgs = dict(messages)
        self._run = run
        super().__init__(linter)

    def process_module(self, node: nodes.Module) -> None:
        """Report what torchlint found in a module."""
        for finding in self._run.findings(node):
            if finding.code not in _PYLINTS_OWN:
                self._report(finding)
        for problem in self._run.problems(node):
            self.add_message(FAILED, line=1, args=(problem,))

    def _report(self, finding: Diagnostic) -> None:
        # pylint leaves out what its options and comments disable.
        self.add_message(
            finding.name,
            line=finding.location.row,
            col_offset=finding.location.column - 1,
            end_lineno=finding.end_location.row,
            end_col_offset=finding.end_location.column - 1,
            args=(finding.message,),
        )


def _families(rules: RuleSet) -> Iterable[dict[str, tuple[str, str, str]]]:
    """The messages by id, in groups that differ in the last two digits."""
    groups: dict[str, dict[str, tuple[str, str, str]]] = defaultdict(dict)
    groups["70"][_FAILED_ID] = ("%s", FAILED, "torchlint could not do its work: its message says why.")
    for code, number in message_ids(rules).items():
        groups[number[1:3]][number] = ("%s", rules[code].name, _description(rules[code]))
    return groups.values()


def _description(rule: type[Rule]) -> str:
    """The page's first paragraph, with where to read the rest."""
    summary = re.sub(r"\s+", " ", rule.page().split("\n\n")[0])
    return f"{summary} `torchlint rule {rule.code}` explains it."
