"""torchlint inside another linter's run: every project is linted once, then each module's findings are looked up."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.config import ConfigError, ConfigFinder, overrides_from
from torchlint.custom_rules import load_rules
from torchlint.discovery import Discovery, Project, project_root
from torchlint.planning import Planner, project_cache
from torchlint.reports.output import visible
from torchlint.runner import Run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from torchlint.custom_rules import RuleSet
    from torchlint.diagnostics import Diagnostic, FileReport


def rules_here() -> RuleSet:
    """All rules, with those of the plugin files of the current folder's configuration if the user allows them."""
    configs = ConfigFinder(overrides_from({}, Path.cwd()))
    configs.for_folder(Path.cwd())
    return load_rules(configs.files)


class ProjectLint:
    """The findings of one run, under torchlint's own configuration and suppression comments.

    rules: the rules there are.
    wanted: codes to run even where torchlint's configuration does not select them.
    jobs: the number of processes, None for as many as there are processors for the work.
    """

    def __init__(self, rules: RuleSet, wanted: Collection[str] = (), jobs: int | None = 1) -> None:
        overrides = {"extend-select": sorted(wanted)} if wanted else {}
        self._configs = ConfigFinder(overrides_from(overrides, Path.cwd()))
        self._rules = rules
        self._jobs = jobs
        self._reports: dict[str, FileReport] = {}
        self._roots: set[str] = set()
        self._problems = list(rules.problems)
        self._said: set[str] = set()
        for message in rules.warnings:
            print(f"torchlint: warning: {visible(message)}", file=sys.stderr)

    def lint(self, paths: Iterable[str]) -> None:
        """Lint files and folders, all at once. What does not exist is the other linter's to complain about."""
        present = [path for path in paths if os.path.exists(path)]
        self._lint(self._discovery().projects(present))

    def findings(self, path: str) -> tuple[Diagnostic, ...]:
        """The findings in one file; its project is linted now if that has not been done."""
        path = os.path.abspath(path)
        if path not in self._reports and not self._discovery().is_excluded(path):
            root, is_marked = project_root(path)
            if is_marked and root not in self._roots:
                # The other linter was given names of modules: more of this project will follow.
                self._roots.add(root)
                self.lint([root])
            if path not in self._reports:
                self.lint([path])
        report = self._reports.get(path)
        return report.findings if report is not None else ()

    def findings_in(self, path: str, content: bytes) -> tuple[Diagnostic, ...]:
        """The findings in a text that stands in for the file, which need not exist."""
        path = os.path.abspath(path)
        discovery = self._discovery()
        if not discovery.is_excluded(path):
            self._lint([discovery.stdin_project(path)], {path: content})
        report = self._reports.get(path)
        return report.findings if report is not None else ()

    def problems(self, path: str) -> tuple[str, ...]:
        """What torchlint failed to do, in this file or altogether; each message is given once."""
        report = self._reports.get(os.path.abspath(path))
        found = [*self._problems, *(report.errors if report is not None else ())]
        new = tuple(message for message in dict.fromkeys(found) if message not in self._said)
        self._said.update(new)
        return new

    def _discovery(self) -> Discovery:
        # Files are named one by one by other linters: an exclusion that did not hold then would never hold.
        return Discovery(self._configs, force_exclude=True)

    def _lint(self, projects: Sequence[Project], overlay: Mapping[str, bytes] | None = None) -> None:
        planner = Planner(self._configs, self._rules, "check", build_edits=False)
        for project in projects:
            targets = tuple(path for path in project.targets if path.endswith(".py") or path in (overlay or {}))
            try:
                plans = list(planner.plans(Project(project.root, targets, project.files)))
                cache = project_cache(self._configs, project.root, writes=not overlay)
                run = Run(project, plans, self._rules, self._jobs, cache, overlay or {})
                self._reports.update((report.path, report) for report in run.reports())
            except ConfigError as error:
                self._problems.append(str(error))
        self._problems += [*self._configs.problems, *planner.problems]
