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

    from torchlint.baseline import Baseline
    from torchlint.changes import Changes
    from torchlint.checker import Plan
    from torchlint.custom_rules import RuleSet
    from torchlint.diagnostics import FileReport
    from torchlint.reports.context import Context

# Formats for people, which end in a summary, and formats whose fixes carry their edits.
_TEXT = ("full", "concise")
_WITH_EDITS = frozenset({"json", "json-lines", "lsp", "sarif", "html"})


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
        self.format, self.files = _destinations(options, self.here)
        self.known: int | None = None

    def check(self) -> int:
        overlay = self._overlay()
        baseline = self._baseline()
        projects = self._projects(overlay)
        self._require_other_outputs(projects)
        changes = self._changes(projects)
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
        if baseline is not None:
            reports = self._without_known(baseline, reports, plans)
            if self.options.write_baseline:
                return 2 if failed else 0
        if changes is not None:
            reports = changes.only(reports, self._context(overlay))
        if self.options.add_ignore:
            from torchlint.add_ignore import add_ignores

            failed |= add_ignores(reports, plans, self.options.quiet)
            return 2 if failed else 0
        failed |= self._report(reports, overlay, len(plans))
        return 2 if failed else self._status(reports, plans)

    def _require_other_outputs(self, projects: Sequence[Project]) -> None:
        """Raise ConfigError where a report would take the place of a file that is linted."""
        targets = {path for project in projects for path in project.targets}
        for _, path in self.files:
            if os.path.abspath(path) in targets:
                raise ConfigError(f"{path}: is a file to lint; name another one for the report")

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
        formats = {self.format, *(form for form, _ in self.files)} & _WITH_EDITS
        return bool(formats - {"json"} if self.options.statistics else formats)

    def _baseline(self) -> Baseline | None:
        if self.options.baseline is None:
            return None
        from torchlint.baseline import Baseline

        return Baseline.read(self.options.baseline, may_be_missing=self.options.write_baseline)

    def _changes(self, projects: Sequence[Project]) -> Changes | None:
        if self.options.changed_since is None:
            return None
        from torchlint.changes import changed_since

        return changed_since(self.options.changed_since, [project.root for project in projects] or [os.getcwd()])

    def _without_known(
        self, baseline: Baseline, reports: Sequence[FileReport], plans: dict[str, Plan]
    ) -> list[FileReport]:
        """The reports with what the baseline does not know; what is stale in it is reported, or pruned and written."""
        from torchlint.reports.summary import counted

        result = baseline.sort(reports, plans, self.registry)
        self.known = result.known
        if self.options.write_baseline:
            count = baseline.write(result.reports, result.stale)
            if not self.options.quiet:
                print(f"{visible(str(baseline.path))} holds {counted(count, 'issue')} now.")
        elif not self.options.quiet:
            for line in result.stale_lines(baseline.path):
                print(visible(line), file=sys.stderr)
        return result.reports

    def _context(self, overlay: dict[str, bytes]) -> Context:
        from torchlint.reports.context import Context, repository_root

        return Context(repository_root(os.getcwd()), self.registry, overlay)

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

    def _report(self, reports: Sequence[FileReport], overlay: dict[str, bytes], files: int) -> bool:
        """Make all reports; whether one of them could not be written."""
        fixed_source = next((report.fixed_source for report in reports if report.fixed_source is not None), None)
        if self.options.action == "fix-source":
            sys.stdout.buffer.write(fixed_source if fixed_source is not None else next(iter(overlay.values())))
            sys.stdout.flush()
        # Standard output belongs to the repaired text where there is one.
        stream = sys.stderr if self.options.action == "fix-source" else sys.stdout
        self._write(self.format, reports, overlay, files, Output(stream, _has_color(stream, self.options.color)))
        stream.flush()
        failed = False
        for form, path in self.files:
            text = io.StringIO()
            self._write(form, reports, overlay, files, Output(text, color=False))
            failed |= not _save(path, text.getvalue())
        if self.options.action == "diff" and not self.options.quiet:
            from torchlint.reports import summary

            print(summary.diff_line(reports), file=sys.stderr)
        return failed

    def _write(
        self, form: str, reports: Sequence[FileReport], overlay: dict[str, bytes], files: int, output: Output
    ) -> None:
        if self.options.action == "diff":
            from torchlint.reports import diff

            diff.write(reports, output)
            return
        shown = () if self.options.fix_only else reports
        if self.options.statistics and form in (*_TEXT, "json"):
            _write_statistics(shown, form, output)
        elif form in _TEXT:
            _write_findings(shown, form, output)
        else:
            from torchlint.reports.formats import render

            output.stream.write(render(form, shown, self._context(overlay)))
        if form in _TEXT and not self.options.quiet:
            self._write_summary(reports, files, output)

    def _write_summary(self, reports: Sequence[FileReport], files: int, output: Output) -> None:
        from torchlint.reports import summary

        fixed_only = self.options.fix_only
        output.line((summary.fixed_line(reports) if fixed_only else summary.found_line(reports, files), "bold"))
        if self.known:
            output.line((f"{summary.counted(self.known, 'issue')} in the baseline.", ""))

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


def _destinations(options: CheckOptions, here: Resolved) -> tuple[str, tuple[tuple[str, Path], ...]]:
    """The format of the terminal's report, and the formats and files of the others.

    Formats and files are paired in order. A format that is left over is the terminal's; else that is the configured
    one, unless it is for machines and went into a file.
    """
    formats = options.output_formats
    files = tuple(zip(formats or (here.value("output-format"),), options.output_files, strict=False))
    if len(formats) > len(files):
        return formats[-1], files
    configured: str = here.file.config.output_format if here.file else "full"
    return (configured if formats or not files or configured in _TEXT else "full"), files


def _write_statistics(reports: Sequence[FileReport], form: str, output: Output) -> None:
    from torchlint.reports import statistics

    if form == "json":
        output.stream.write(statistics.render_json(reports))
    else:
        statistics.write(reports, output)


def _write_findings(reports: Sequence[FileReport], form: str, output: Output) -> None:
    if form == "concise":
        from torchlint.reports import concise

        concise.write(reports, output)
    else:
        from torchlint.reports import full

        full.write(reports, output)


def _save(path: Path, text: str) -> bool:
    """Write a report to a file; whether that was possible. Where it was not, one line says so."""
    from torchlint.saving import save

    try:
        save(path, text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        print(visible(f"error: {path}: the report cannot be written: {reason}"), file=sys.stderr)
        return False
    return True


def _has_color(stream: TextIO, wanted: str) -> bool:
    """Whether to style what is written to a stream: as asked for, else on a terminal without NO_COLOR."""
    if wanted != "auto":
        return wanted == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
