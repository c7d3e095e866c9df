"""`torchlint verify`: measure the rules' fixes, show the table, and say by the exit status how it went.

Exit status 0: no row is bad. 1: a fix computes something else, is slower, or does not remove what its rule claims. 2:
wrong usage, torch is missing, or a file cannot be written.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from torchlint.config import ConfigError, did_you_mean
from torchlint.selection import default_registry

from . import results
from .records import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .records import Environment, Row
    from .verification import Options
    from .workload import Workload

INSTALL = "torch is not installed beside torchlint: `pip install 'torchlint[verify]'` brings what `verify` needs"
NO_GPU = "Measured on a CPU: times on a GPU are not measured yet."
SNAPSHOT_NEEDS_CUDA = "--memory-snapshot needs CUDA: no snapshots are written"

_EPILOG = """\
examples:
  torchlint verify                          measure the fixes of all rules
  torchlint verify TL101 --quick            one rule, with fewer pairs of times
  torchlint verify --output html -o out.html
  torchlint verify --sweep all              how times depend on sizes
  torchlint verify --cross-check            findings beside what the profiler saw
  torchlint verify --script train.py -- ARGS    your own script (--script --help says more)

exit status:
  0 no bad row, 1 a fix that differs, is slower, or does not remove what its rule claims, 2 wrong usage or no torch
"""


def main(arguments: list[str]) -> int:
    """Run the verb and return the exit status. Raises ConfigError for wrong usage."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(argument == "--script" or argument.startswith("--script=") for argument in own):
        return _script(arguments)
    options = _parser().parse_args(arguments)
    if importlib.util.find_spec("torch") is None:
        raise ConfigError(f"verify: {INSTALL}")
    with _terminated_as_interrupted():
        table = _measure(options)
    return _finish(table, options)


def _script(arguments: list[str]) -> int:
    from .script import command

    with _terminated_as_interrupted():
        return command.main(arguments)


def _measure(options: argparse.Namespace) -> Table:
    """All that was asked for, as one table."""
    from . import environment
    from .verification import now

    device = _device(options.device)
    threads = options.threads or max(environment.usable_cores() // 2, 1)
    place = environment.describe(device, threads)
    chosen = _chosen(options.codes)
    sweeps = _sweep_names(options.sweep)
    # Sweeps and the cross-check are asked for by themselves, unless rules are named too.
    measured = chosen if options.codes or not (sweeps or options.cross_check) else []
    notes = [NO_GPU if device == "cpu" else "", environment.busyness()]
    table = Table(place, now(), notes=tuple(note for note in notes if note))
    if measured:
        table = msgspec.structs.replace(table, rows=_rows(measured, options, place))
    if sweeps:
        table = _with_sweeps(table, sweeps, options)
    if options.cross_check:
        table = _with_sightings(table, chosen, options)
    return table


def _device(wanted: str) -> str:
    import torch

    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise ConfigError("--device cuda: torch finds no GPU here")
    return ("cuda" if available else "cpu") if wanted == "auto" else wanted


def _chosen(codes: Sequence[str]) -> list[Workload]:
    """The workloads of the rules that were named, or all. Raises ConfigError for a rule that has none."""
    from .workload import NOT_AT_RUN_TIME, BenchError, workloads

    try:
        found = workloads()
    except BenchError as error:
        raise ConfigError(str(error)) from error
    names = {rule.name: code for code, rule in default_registry().items()}
    chosen = []
    for wanted in codes or found:
        code = names.get(wanted.lower(), wanted.upper())
        if code in NOT_AT_RUN_TIME:
            raise ConfigError(f"verify: there is nothing to measure for {code}: {NOT_AT_RUN_TIME[code]}")
        if code not in found:
            reason = "has no workload" if code in names.values() else f"is no rule{did_you_mean(code, list(found))}"
            raise ConfigError(f"verify: {wanted!r} {reason}")
        chosen.append(found[code])
    return list({workload.code: workload for workload in chosen}.values())


def _sweep_names(wanted: Sequence[str]) -> list[str]:
    if not wanted:
        return []
    from .sweeps import SWEEPS

    names = list(SWEEPS) if "all" in wanted else list(dict.fromkeys(wanted))
    for name in names:
        if name not in SWEEPS:
            raise ConfigError(
                f"--sweep: there is no {name!r}{did_you_mean(name, list(SWEEPS))}; there are: {', '.join(SWEEPS)}, all"
            )
    return names


def _rows(chosen: Sequence[Workload], options: argparse.Namespace, place: Environment) -> tuple[Row, ...]:
    from .progress import VerifyProgress
    from .verification import STEPS, verify

    settings = _options(options, place)
    with VerifyProgress(len(chosen) * len(STEPS), wanted=not options.no_progress) as progress:
        return tuple(verify(workload, settings, _steps_of(workload, progress.begin)) for workload in chosen)


def _steps_of(workload: Workload, begin: Callable[[str], None]) -> Callable[[str], None]:
    return lambda step: begin(f"{workload.code} {workload.name}: {step}")


def _options(options: argparse.Namespace, place: Environment) -> Options:
    from .timing import PAIRS, QUICK_PAIRS
    from .verification import Options

    if options.memory_snapshot is not None and place.device == "cpu":
        print(SNAPSHOT_NEEDS_CUDA, file=sys.stderr)
    return Options(
        device=place.device,
        gpus=place.gpus,
        threads=place.threads,
        pairs=QUICK_PAIRS if options.quick else PAIRS,
        limits=_limits(options),
        quick=options.quick,
        snapshot=options.memory_snapshot if place.device != "cpu" else None,
    )


def _limits(options: argparse.Namespace) -> Any:
    from .children import Limits
    from .environment import usable_memory

    memory = options.memory_limit * 2**30 if options.memory_limit else usable_memory() / 2
    return Limits(options.time_limit, int(memory))


def _with_sweeps(table: Table, names: Sequence[str], options: argparse.Namespace) -> Table:
    from .sweeps import measure_sweep

    place = table.environment
    swept = [
        measure_sweep(name, place.device, threads=place.threads, quick=options.quick, progress=_teller(options))
        for name in names
    ]
    return msgspec.structs.replace(table, sweeps=tuple(swept))


def _with_sightings(table: Table, chosen: Sequence[Workload], options: argparse.Namespace) -> Table:
    from .cross_check import cross_check

    place = table.environment
    found = cross_check(chosen, place.device, _limits(options), place.threads, _teller(options))
    return msgspec.structs.replace(table, sightings=found.sightings, notes=(*table.notes, *found.notes))


def _teller(options: argparse.Namespace) -> Callable[[str], None]:
    """Says on standard error what is being measured, where progress is wanted."""

    def tell(text: str) -> None:
        if not options.no_progress:
            print(text, file=sys.stderr)

    return tell


def _finish(table: Table, options: argparse.Namespace) -> int:
    """Keep and show the table: where it cannot be kept, it is shown all the same."""
    from .reports import render

    problem = _save(table) if options.save else ""
    if options.output_file is None:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        sys.stdout.write(render(table, options.output, color=color, width=_width()))
        sys.stdout.flush()
    else:
        _write(options.output_file, render(table, options.output))
    if problem:
        raise ConfigError(problem)
    return int(any(row.verdict.is_bad for row in table.rows))


def _save(table: Table) -> str:
    """Keep the table; what went wrong, or ""."""
    try:
        print(f"kept in {results.save(table)}", file=sys.stderr)
    except results.ResultsError as error:
        return str(error)
    return ""


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
    except OSError as error:
        sys.stdout.write(text)  # what took minutes to measure is not lost
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError, io.UnsupportedOperation):
        return 120


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Have SIGTERM end the run as Ctrl-C does: temporary folders and child processes go with it."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    try:
        previous = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread, where no signal arrives
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchlint verify",
        description="Runs the rules' fixes on a device, and measures whether they compute the same and what they save.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("codes", nargs="*", metavar="CODE", help="rules to measure, by code or name (default: all)")
    _add_measuring(parser)
    _add_reporting(parser)
    parser.add_argument("--script", metavar="FILE", help="measure your own script instead; see --script --help")
    return parser


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("measuring")
    group.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: a GPU if there is one"
    )
    group.add_argument("--quick", action="store_true", help="fewer pairs of times; the rows say so")
    group.add_argument("--threads", type=_positive, metavar="N", help="torch's threads (default: half of the cores)")
    group.add_argument(
        "--time-limit", type=_above_zero, default=300.0, metavar="SECONDS", help="for each thing asked of a workload"
    )
    group.add_argument(
        "--memory-limit", type=_above_zero, metavar="GIB", help="of one version (default: half of the memory)"
    )
    group.add_argument("--memory-snapshot", type=Path, metavar="FILE", help="save before/after snapshots of GPU memory")
    group.add_argument("--sweep", action="append", default=[], metavar="NAME", help="times over sizes; `all` for each")
    group.add_argument("--cross-check", action="store_true", help="lay findings and the profiler's events side by side")


def _add_reporting(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("reporting")
    formats = ("table", "json", "markdown", "html")
    group.add_argument("--output", choices=formats, default="table", help="the form of the report (default: table)")
    group.add_argument("-o", "--output-file", type=Path, metavar="FILE", help="write the report to a file")
    group.add_argument("--save", action="store_true", help="keep the rows: rules' pages show the newest")
    group.add_argument("-q", "--no-progress", action="store_true", help="do not show what is being measured")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("has to be 1 or more")
    return number


def _above_zero(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError("has to be a number above 0")
    return number
