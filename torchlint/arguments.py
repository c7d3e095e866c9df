"""The options of the command line, as records."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from torchlint import __version__
from torchlint.config import ConfigFinder, OutputFormat, overrides_from

_EPILOG = """\
other verbs:
  torchlint rules               list all rules
  torchlint rule TL101          explain a rule, by code or name
  torchlint config [PATH]       show the settings in force for a path, and where they come from
  torchlint verify [RULE]       run the fixes on this device, and measure what they save (needs torch)
  torchlint server              run the language server, for editors
  torchlint init                write a configuration that fits the project
  torchlint completion SHELL    print a script that completes this command line in bash, zsh or fish

exit status:
  0 nothing to report, 1 findings, 2 wrong usage or configuration, unreadable files or an internal error

examples:
  torchlint .                   lint the current folder
  torchlint --fix .             and repair what can be repaired safely
  torchlint --diff train.py     show the repairs, write nothing
  torchlint --output-format sarif --output-file out.sarif
                                a report for a machine beside the one on the terminal
"""


@dataclass(frozen=True)
class CheckOptions:
    """What `torchlint check` was asked to do, beside the settings in `configs`."""

    paths: tuple[str, ...]
    configs: ConfigFinder
    allow_plugins: bool
    action: str
    fix_only: bool
    add_ignore: bool
    exit_zero: bool
    exit_non_zero_on_fix: bool
    output_formats: tuple[str, ...]
    output_files: tuple[Path, ...]
    baseline: Path | None
    write_baseline: bool
    changed_since: str | None
    statistics: bool
    show_files: bool
    watch: bool
    stdin: bool
    stdin_filename: str | None
    force_exclude: bool
    use_cache: bool
    jobs: int | None
    quiet: bool
    color: str


def parse_check(arguments: list[str]) -> CheckOptions:
    """The options of a check. Wrong usage ends the program with status 2, `--help` with 0."""
    parser = check_parser()
    options = parser.parse_args(arguments)
    _require_reports_that_fit(parser, options)
    stdin = "-" in options.paths or (options.stdin_filename is not None and not options.paths)
    fixes = options.fix or options.fix_only
    action = "diff" if options.diff else ("fix-source" if stdin else "fix") if fixes else "check"
    return CheckOptions(
        paths=tuple(options.paths or ["."]),
        configs=configs_from(options),
        allow_plugins=options.allow_plugins,
        action=action,
        fix_only=options.fix_only,
        add_ignore=options.add_ignore,
        exit_zero=options.exit_zero,
        exit_non_zero_on_fix=options.exit_non_zero_on_fix,
        output_formats=tuple(options.output_format or ()),
        output_files=tuple(options.output_file),
        baseline=options.baseline,
        write_baseline=options.write_baseline,
        changed_since=options.changed_since,
        statistics=options.statistics,
        show_files=options.show_files,
        watch=options.watch,
        stdin=stdin,
        stdin_filename=options.stdin_filename,
        force_exclude=options.force_exclude,
        use_cache=not options.no_cache,
        jobs=options.jobs,
        quiet=options.quiet,
        color=options.color,
    )


def _require_reports_that_fit(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Wrong usage where options about reports contradict one another."""
    files, formats = len(options.output_file), len(options.output_format or ())
    if formats > files + 1:
        parser.error("more --output-format than reports: one goes to the terminal, one to each --output-file")
    if files > max(formats, 1):
        parser.error("more --output-file than --output-format: the first file takes the first format, and so on")
    if len({os.path.realpath(path) for path in options.output_file}) < files:
        parser.error("two reports cannot go to one --output-file")
    if options.write_baseline and options.baseline is None:
        parser.error("--write-baseline needs --baseline FILE, which says where")
    if options.write_baseline and (files or options.diff or options.add_ignore or options.changed_since is not None):
        parser.error(
            "--write-baseline writes all findings and reports none: it cannot be combined with --output-file, --diff, "
            "--add-ignore or --changed-since"
        )
    if options.changed_since is not None and (options.fix or options.fix_only or options.diff):
        parser.error("--changed-since only reports: it cannot be combined with --fix, --fix-only or --diff")
    if options.changed_since is not None and ("-" in options.paths or options.stdin_filename is not None):
        parser.error("--changed-since reads files: it cannot be combined with standard input")


def configs_from(options: argparse.Namespace) -> ConfigFinder:
    """The configuration under the settings that the options give."""
    overrides = overrides_from(settings_given(options), Path.cwd())
    explicit = options.config.absolute() if options.config else None
    return ConfigFinder(overrides, explicit, options.isolated)


def settings_given(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that the command line gives, by their keys in a configuration file."""
    keys = (
        *("select", "ignore", "extend-select", "exclude", "extend-exclude", "per-file-ignores", "target-torch"),
        *("dataloader-workers", "fail-on", "unsafe-fixes", "respect-gitignore", "output-format", "cache-dir"),
    )
    given = {key: getattr(options, key.replace("-", "_"), None) for key in keys}
    formats = given["output-format"]
    given["output-format"] = formats[-1] if formats else None
    return {key: value for key, value in given.items() if value is not None}


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The options that stand for keys of a configuration file, and those that say where it is."""
    group = parser.add_argument_group("settings (the same keys as in a configuration file)")
    many: dict[str, Any] = {"action": "extend", "type": _listed, "default": None}
    group.add_argument(
        "--select", metavar="CODES", help="rules to run: codes, prefixes (TL1), names or ALL, by commas", **many
    )
    group.add_argument("--ignore", metavar="CODES", help="rules not to run", **many)
    group.add_argument("--extend-select", metavar="CODES", help="rules to run beside the selected ones", **many)
    group.add_argument(
        "--per-file-ignores",
        metavar="PATTERN:CODE,…",
        type=_per_file,
        action=_Merge,
        help="rules not to run on matching files",
    )
    group.add_argument(
        "--exclude", metavar="PATTERNS", help="files and folders to leave out, instead of the usual ones", **many
    )
    group.add_argument(
        "--extend-exclude", metavar="PATTERNS", help="files and folders to leave out beside those", **many
    )
    group.add_argument(
        "--respect-gitignore",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="leave out what .gitignore files name",
    )
    group.add_argument(
        "--target-torch",
        metavar="VERSION",
        help="the oldest torch that the code supports (default: the project's metadata says)",
    )
    group.add_argument(
        "--dataloader-workers", metavar="N", type=int, help="the num_workers that TL301 suggests (default: 4)"
    )
    group.add_argument(
        "--fail-on", choices=("warning", "info"), help="the least level that fails the run (default: warning)"
    )
    group.add_argument(
        "--output-format",
        action="append",
        metavar="FORMAT",
        choices=get_args(OutputFormat),
        help=f"the form of the report (default: full): {', '.join(get_args(OutputFormat))}; may be given several times",
    )
    group.add_argument(
        "--cache-dir", metavar="FOLDER", help="where to keep the cache (default: .torchlint_cache in the project)"
    )
    group.add_argument(
        "--config", metavar="FILE", type=Path, help="a configuration file to use instead of those that are found"
    )
    group.add_argument("--isolated", action="store_true", help="use no configuration file")
    add_allow_plugins(group)


def add_allow_plugins(parser: argparse._ActionsContainer) -> None:
    """The option that lets a project's configuration run code: the rules in its `plugins`."""
    parser.add_argument(
        "--allow-plugins", action="store_true", help="load (that is, run) the files that the setting `plugins` names"
    )


def check_parser() -> argparse.ArgumentParser:
    """The options of `torchlint check`."""
    parser = argparse.ArgumentParser(
        prog="torchlint",
        usage="torchlint [check] [OPTIONS] [PATHS]",
        description="Finds and repairs the habits that make PyTorch code waste the GPU.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATHS", help="files and folders (default: the current one); - reads standard input"
    )
    parser.add_argument("-V", "--version", action="version", version=f"torchlint {__version__}")
    _add_fixing(parser)
    add_settings(parser)
    _add_running(parser)
    return parser


def _add_fixing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("repairing")
    group.add_argument("--fix", action="store_true", help="repair what can be repaired safely")
    group.add_argument(
        "--unsafe-fixes",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="repair also what may change results; each finding says how",
    )
    group.add_argument(
        "--diff", action="store_true", help="show the repairs as a diff and write nothing; exit 1 where there are some"
    )
    group.add_argument("--fix-only", action="store_true", help="repair, and do not report what is left")
    group.add_argument("--exit-non-zero-on-fix", action="store_true", help="exit 1 when something was repaired")
    group.add_argument(
        "--add-ignore",
        action="store_true",
        help="write a `# torchlint: ignore[…]` comment on the line of every finding",
    )


def _add_running(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("running and reporting")
    group.add_argument("--exit-zero", action="store_true", help="exit 0 even when there are findings")
    group.add_argument(
        *("-o", "--output-file"),
        metavar="FILE",
        action="append",
        type=Path,
        default=[],
        help="write a report to a file beside the one on the terminal; may be given several times: the first file "
        "takes the first format, the second the second, and a format that is left over is the terminal's",
    )
    group.add_argument(
        "--baseline", metavar="FILE", type=Path, help="leave out the findings that are known from this file"
    )
    group.add_argument(
        "--write-baseline", action="store_true", help="write today's findings to the baseline, and drop stale ones"
    )
    group.add_argument(
        "--changed-since", metavar="REV", help="report only findings on lines changed since a revision of git"
    )
    group.add_argument(
        "--statistics", action="store_true", help="count the findings of each rule instead of listing them"
    )
    group.add_argument("--show-files", action="store_true", help="list the files that would be linted, and stop")
    group.add_argument("--watch", action="store_true", help="lint again whenever a file changes, until Ctrl-C")
    group.add_argument("--stdin-filename", metavar="PATH", help="the name of the text on standard input")
    group.add_argument(
        "--force-exclude", action="store_true", help="leave out excluded files even where they are named explicitly"
    )
    group.add_argument("-n", "--no-cache", action="store_true", help="neither read nor write the cache")
    group.add_argument(
        "-j", "--jobs", metavar="N", type=_positive, help="the number of processes (default: by size and processors)"
    )
    group.add_argument("-q", "--quiet", action="store_true", help="print findings and errors only")
    group.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colors on the terminal (default: auto)"
    )


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("has to be 1 or more")
    return number


def _per_file(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in _listed(text):
        pattern, colon, code = part.rpartition(":")
        if not colon or not pattern or not code:
            raise argparse.ArgumentTypeError(f"{part!r} has to be PATTERN:CODE")
        found.setdefault(pattern, []).append(code)
    return found


class _Merge(argparse.Action):
    """Collects the tables of an option that may be given several times."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        merged: dict[str, list[str]] = getattr(namespace, self.dest) or {}
        for pattern, codes in values.items():
            merged.setdefault(pattern, []).extend(codes)
        setattr(namespace, self.dest, merged)
