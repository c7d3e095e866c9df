"""`torchlint verify --script`: ask, run, report, and say by the exit status how it went."""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.config import ConfigError

from . import report as reports
from .fixes import Selection, check_selectors
from .project_copy import CopyError
from .run import Options
from .verify import NothingToFix, Wishes, place_of, verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from .outcome import Report
    from .verify import Place

_EPILOG = """\
The project of the script (the nearest folder with .git, pyproject.toml or setup.py, else the script's own) is copied
to a temporary folder. The fixes are made there, and the script runs there, in turn without and with them. Your own
files are not changed.

exit status:
  0 the fixes do no harm, 1 they do (slower, differs) or the script gives nothing to compare,
  2 wrong usage, or nothing was run

example:
  torchlint verify --script train.py --bisect -- --epochs 1 --data data/
"""


def main(arguments: list[str]) -> int:
    """Run the verb and return the exit status. Raises ConfigError for wrong settings."""
    own, _separator, script_arguments = _split(arguments)
    options = _parser().parse_args(own)
    if options.script is None:
        raise ConfigError("verify: name the script with --script")
    try:
        return _main(options, tuple(script_arguments))
    except CopyError as error:
        raise ConfigError(str(error)) from error
    except NothingToFix as error:
        print(f"{error}.", file=sys.stderr)
        return 0


def _split(arguments: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in arguments:
        return arguments, False, []
    at = arguments.index("--")
    return arguments[:at], True, arguments[at + 1 :]


def _main(options: argparse.Namespace, script_arguments: tuple[str, ...]) -> int:
    if importlib.util.find_spec("torch") is None:
        raise ConfigError("verify: torch is not installed beside torchlint; install torchlint[verify] where torch is")
    if not options.script.is_file():
        raise ConfigError(f"{options.script}: there is no such script")
    codes = tuple(options.fix_codes) if options.fix_codes else None
    check_selectors(codes or ())
    place = place_of(options.script, options.project, Path.cwd())
    running = Options(
        script=str(place.script),
        arguments=script_arguments,
        steps=options.steps,
        warmup=options.warmup,
        pairs=options.pairs,
        seconds=options.time_limit,
        seed=options.seed,
    )
    if options.warmup >= options.steps:
        raise ConfigError(f"--warmup: of {options.steps} steps not all can be warm-up (--steps)")
    if not _may_run(place, running, options.yes):
        return 2
    wishes = Wishes(Selection(codes, options.unsafe_fixes), options.bisect, options.link_data)
    with _Status(options.quiet) as status:
        found = verify(place, running, wishes, progress=status.show)
    _write(found, options)
    return int(found.comparison.verdict.is_bad)


def _may_run(place: Place, options: Options, yes: bool) -> bool:
    """Say that the user's code will be executed, and whether they agree."""
    command = shlex.join([os.path.relpath(place.script, place.folder), *options.arguments])
    print(
        f"This executes your code, with your rights: `python {command}`, at least {2 + 2 * options.pairs} times, in "
        f"copies of {place.root}. What it does beyond its project (network, other folders), it does each time.",
        file=sys.stderr,
    )
    if yes:
        return True
    if not sys.stdin.isatty():
        print("error: nothing was run: without a terminal to ask on, agree with --yes", file=sys.stderr)
        return False
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("Nothing was run.", file=sys.stderr)
    return False


class _Status:
    """Shows on a terminal's stderr what is being done."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()

    def __enter__(self) -> _Status:
        if self._shown:
            from rich.console import Console

            self._status = Console(stderr=True, markup=False, emoji=False).status("")
            self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._shown:
            self._status.stop()

    def show(self, what: str) -> None:
        """Replace what is shown."""
        if self._shown:
            from rich.text import Text

            from ..reports.escaping import inline

            self._status.update(Text(inline(what)))


def _write(found: Report, options: argparse.Namespace) -> None:
    if options.output_file is not None:
        text = reports.render(found, options.output)
        try:
            options.output_file.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
        except OSError as error:
            sys.stdout.write(text)  # what was measured is not lost
            raise ConfigError(f"{options.output_file}: cannot be written: {error.strerror or error}") from error
        return
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    sys.stdout.write(reports.render(found, options.output, color=color, width=_width()))
    sys.stdout.flush()


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError, io.UnsupportedOperation):
        return 120


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchlint verify --script",
        usage="torchlint verify --script SCRIPT [OPTIONS] [-- ARGUMENTS]",
        description="Runs a script without and with the fixes of its project, and says what they brought, end to end.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--script", metavar="SCRIPT", type=Path, help="the script; its arguments follow after --")
    parser.add_argument("--steps", metavar="N", type=_at_least(2), default=50, help="steps of a run (default: 50)")
    parser.add_argument(
        "--warmup", metavar="N", type=_at_least(1), default=5, help="how many of them are not timed (default: 5)"
    )
    parser.add_argument(
        "--pairs", metavar="N", type=_at_least(1), default=6, help="runs of each version to time (default: 6)"
    )
    parser.add_argument(
        "--fix-codes", metavar="CODES", action="extend", type=_listed, help="which fixes: codes, prefixes or names"
    )
    parser.add_argument(
        "--unsafe-fixes",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="make also fixes that may change results (default: yes)",
    )
    parser.add_argument(
        "--bisect",
        nargs="?",
        choices=("code", "fix"),
        const="code",
        default="",
        help="measure also the fixes of each code alone, or each fix alone",
    )
    _add_running(parser)
    _add_reporting(parser)
    return parser


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="execute the script without asking")
    parser.add_argument("--project", metavar="FOLDER", type=Path, help="the folder to copy (default: see below)")
    parser.add_argument(
        "--time-limit", metavar="SECONDS", type=_seconds, default=600.0, help="for one run (default: 600)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of the random generators (default: 0)")
    parser.add_argument(
        "--link-data",
        action="store_true",
        help="link large data instead of copying it even where the system cannot guard it against being written to",
    )


def _add_reporting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", choices=reports.FORMATS, default="table", help="the form of the report")
    parser.add_argument("-o", "--output-file", metavar="FILE", type=Path, help="write the report to a file")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"has to be {least} or more")
        return value

    return number


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("has to be a number of seconds above 0")
    return value


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
