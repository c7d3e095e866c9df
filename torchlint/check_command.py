"""`torchlint check`: find the files, lint them, report, and say by the exit status how it went."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from torchlint.arguments import CheckOptions, parse_check
from torchlint.cache import Cache
from torchlint.config import ConfigError, Resolved
from torchlint.custom_rules import load_rules
from torchlint.discovery import Discovery, Project
from torchlint.planning import Planner, project_cache
from torchlint.progress import ProgressBar
from torchlint.reports.output import Output, display_path, visible
from torchlint.runner import Run
from torchlint.selection import selected_codes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlint.checker import Plan
    from torchlint.custom_rules import RuleSet
    from torchlint.diagnostics import FileReport


def main(arguments: list[str]) -> int:
    """Run the verb and return the exit status."""
    options = parse_check(arguments)
    if options.watch:
        from torchlint.watching import watch

        return watch(options, lambda: parse_check(arguments), lambda fresh: _Session(fresh).check())
    session = _Session(options)
    if options.show_files:
        return session.show_files()
    return session.check()


class _Session:
    """One check: what was asked for, what is known so far, and the messages about what went wrong."""

    def __init__(self, options: CheckOptions) -> None:
        self.options = options
        self.here: Resolved = options.configs.for_folder(Path.cwd())
        self.discovery = Discovery(options.configs, options.force_exclude)
        self.format: str = self.here.value("output-format")

    def check(self) -> int:
        overlay = self._overlay()
        projects = self._projects(overlay)
        self.registry = self._rules()
        planner = Planner(self.options.configs, self.registry, self._action, self._needs_edits)
        planned = [(project, list(planner.plans(project))) for project in projects]
        reports = self._run(planned, overlay)
        plans = {plan.path: plan for _, plans in planned for plan in plans}
        problems = [*self.options.configs.problems, *self.registry.problems]
        problems += [*self.discovery.problems, *planner.problems]
        failed = _complain(problems, reports)
        if not plans and not failed:
            print("warning: no Python files or notebooks found under the given paths", file=sys.stderr)
        if self.options.add_ignore:
            from torchlint.add_ignore import add_ignores

            failed |= add_ignores(reports, plans, self.options.quiet)
            return 2 if failed else 0
        self._report(reports, overlay, len(plans))
        return 2 if failed else self._status(reports, plans)

    def show_files(self) -> int:
        """List the files that a check would lint."""
        overlay = self._overlay()
        for path in sorted(path for project in self._projects(overlay) for path in project.targets):
            print(display_path(path))
        return 2 if _complain([*self.options.configs.problems, *self.discovery.problems], ()) else 0

    def _rules(self) -> RuleSet:
        """The rules there are. A selector of the command line that means none is wrong usage: nothing is done."""
        rules = load_rules(self.options.configs.files, self.options.allow_plugins)
        for message in rules.warnings:
            print(f"warning: {visible(message)}", file=sys.stderr)
        command_line = Resolved(None, self.here.overrides)
        everywhere = rules if self.here.file is None else rules.known_to(self.here.file)
        selected_codes(command_line, dict(everywhere))
        return rules

    @property
    def _action(self) -> str:
        return "check" if self.options.add_ignore else self.options.action

    @property
    def _needs_edits(self) -> bool:
        return self.format == "json" and not self.options.statistics

    def _overlay(self) -> dict[str, bytes]:
        if not self.options.stdin:
            return {}
        path = os.path.abspath(self.options.stdin_filename or "stdin.py")
        return {path: sys.stdin.buffer.read()}

    def _projects(self, overlay: dict[str, bytes]) -> list[Project]:
        for path in overlay:
            excluded = self.options.force_exclude and self.discovery.is_excluded(path)
            return [] if excluded else [self.discovery.stdin_project(path)]
        return self.discovery.projects(self.options.paths)

    def _run(self, planned: Sequence[tuple[Project, list[Plan]]], overlay: dict[str, bytes]) -> list[FileReport]:
        reports: list[FileReport] = []
        with ProgressBar(not self.options.quiet) as progress:
            for project, plans in planned:
                cache = self._cache(project)
                run = Run(project, plans, self.registry, self.options.jobs, cache, overlay, progress)
                reports += run.reports()
        return sorted(reports, key=lambda report: report.path)

    def _cache(self, project: Project) -> Cache:
        if not self.options.use_cache:
            return Cache(None, project.root)
        return project_cache(self.options.configs, project.root, writes=not self.options.stdin)

    def _report(self, reports: Sequence[FileReport], overlay: dict[str, bytes], files: int) -> None:
        fixed_source = next((report.fixed_source for report in reports if report.fixed_source is not None), None)
        if self.options.action == "fix-source":
            sys.stdout.buffer.write(fixed_source if fixed_source is not None else next(iter(overlay.values())))
            sys.stdout.flush()
        if self.options.output_file is not None:
            text = io.StringIO()
            self._write(reports, files, Output(text, color=False))
            _save(self.options.output_file, text.getvalue())
            return
        # Standard output belongs to the repaired text where there is one.
        stream = sys.stderr if self.options.action == "fix-source" else sys.stdout
        self._write(reports, files, Output(stream, _has_color(stream, self.options.color)))

    def _write(self, reports: Sequence[FileReport], files: int, output: Output) -> None:
        from torchlint.reports import summary

        if self.options.action == "diff":
            from torchlint.reports import diff

            diff.write(reports, output)
            output.stream.flush()
            if not self.options.quiet:
                print(summary.diff_line(reports), file=sys.stderr)
            return
        shown = () if self.options.fix_only else reports
        _write_findings(shown, self.format, self.options.statistics, output)
        if self.format != "json" and not self.options.quiet:
            fixed_only = self.options.fix_only
            output.line((summary.fixed_line(reports) if fixed_only else summary.found_line(reports, files), "bold"))

    def _status(self, reports: Sequence[FileReport], plans: dict[str, Plan]) -> int:
        fixed = any(report.fixed for report in reports)
        if self.options.action == "diff":
            return int(fixed and not self.options.exit_zero)
        if fixed and self.options.exit_non_zero_on_fix:
            return 1
        if self.options.exit_zero or self.options.fix_only:
            return 0
        return int(any(_fails(report, plans) for report in reports))


def _fails(report: FileReport, plans: dict[str, Plan]) -> bool:
    """Whether a finding of the report is at the level at which its file fails the run."""
    plan = plans.get(report.path)
    levels = {"warning", "info"} if plan is not None and plan.fail_on == "info" else {"warning"}
    return any(finding.level in levels for finding in report.findings)


def _complain(problems: Sequence[str], reports: Sequence[FileReport]) -> bool:
    """Print what went wrong to stderr, each message once; whether there was an error."""
    errors = [f"error: {problem}" for problem in problems]
    warnings = []
    for report in reports:
        errors += [f"error: {report.unreadable}"] if report.unreadable else []
        errors += report.errors
        warnings += [f"warning: {message}" for message in report.warnings]
    for message in dict.fromkeys(errors + warnings):
        print(visible(message), file=sys.stderr)
    return bool(errors)


def _write_findings(reports: Sequence[FileReport], form: str, statistics: bool, output: Output) -> None:
    if statistics:
        from torchlint.reports import statistics as table

        if form == "json":
            output.stream.write(table.render_json(reports))
        else:
            table.write(reports, output)
    elif form == "json":
        from torchlint.reports import json

        output.stream.write(json.render(reports))
    elif form == "concise":
        from torchlint.reports import concise

        concise.write(reports, output)
    else:
        from torchlint.reports import full

        full.write(reports, output)


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
    except OSError as error:
        raise ConfigError(f"{path}: the report cannot be written: {error.strerror or error}") from error


def _has_color(stream: TextIO, wanted: str) -> bool:
    """Whether to style what is written to a stream: as asked for, else on a terminal without NO_COLOR."""
    if wanted != "auto":
        return wanted == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
