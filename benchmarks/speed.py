#!/usr/bin/env python3
"""Time torchlint beside `ast.parse`, ruff and TorchFix on the source distribution of timm, in one run.

    python benchmarks/speed.py FOLDER [--repeats 5] [--sources PATH] [--profile]

FOLDER keeps what is needed between runs: timm's sources, and a virtual environment with ruff and TorchFix, both fetched
by pip where they are missing. Only ratios are worth comparing between machines, so each measurement stands beside its
anchor and the two are taken in turn; the table shows medians. Exit 1 where a ratio is over its limit.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import cProfile
import gc
import json
import os
import pstats
import shlex
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from torchlint.checker import COLLECT_BYTES
from torchlint.config import Settings
from torchlint.encoded import decode, encode
from torchlint.engine import check_module
from torchlint.runner import ROUNDS
from torchlint.selection import default_registry
from torchlint.semantics import FileSummary, Linked, Module, ProjectLayout, link, relevant
from torchlint.source import SourceError, SourceFile

JOBS = 2
UNWANTED = ("libcst", "torch", "rich")

Command = Sequence[str | Path]
T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch what is missing, measure everything, print the table."""
    options = _parser().parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    sources: Path = (options.sources or _fetch_timm(options.folder)).resolve()
    if options.profile:
        _profile(sources)
        return 0
    if options.stages:
        print(json.dumps(_measure_stages(_read(sources), sources)))
        return 0
    tools = _tools(options)
    files = _read(sources)
    print(f"{len(files)} files, {sum(f.text.count(chr(10)) for f in files.values()):,} lines in {sources}")
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} processors; {tools.versions()}")
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(options.repeats):
        _measure_own_process(sources, times)
    _measure_commands(sources, tools, options, times)
    rows = _rows(times)
    print("\n".join(_table(rows)))
    imported = _unwanted_imports(sources, tools)
    print(f"a clean run imports {', '.join(imported) if imported else 'none of ' + ', '.join(UNWANTED)}")
    return int(bool(imported) or not all(row.holds for row in rows))


# What is measured


def _measure_own_process(sources: Path, times: dict[str, list[float]]) -> None:
    """`ast.parse` of all files, and torchlint's own work on the trees, in a process of their own, as in a run: one that
    has parsed before parses faster, because its memory is there already.
    """
    command = [sys.executable, __file__, str(sources.parent), "--sources", str(sources), "--stages"]
    stages: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    times["ast.parse"].append(stages.pop("ast.parse"))
    times["semantics and rules"].append(sum(stages.values()))
    for name, seconds in stages.items():
        times[name].append(seconds)


def _measure_stages(files: dict[str, SourceFile], root: Path) -> dict[str, float]:
    """Seconds by stage, on one core without collections between."""
    gc.collect()
    gc.disable()
    try:
        return dict(_analyse(files, root))
    finally:
        gc.enable()


def _analyse(files: dict[str, SourceFile], root: Path) -> dict[str, float]:
    """All that a run in one process does with files that have been read, in the runner's order: each is parsed and
    indexed, then the project is worked out in rounds, then each is checked and given back. Seconds by stage.
    """
    stages: dict[str, float] = defaultdict(float)
    clock = perf_counter()

    def lap(stage: str) -> None:
        nonlocal clock
        now = perf_counter()
        stages[stage] += now - clock
        clock = now

    layout = ProjectLayout(root, files)
    collect = _Collector()
    modules = {}
    for path, source in files.items():
        try:
            tree = ast.parse(source.text)
        except SyntaxError:
            continue
        finally:
            lap("ast.parse")
        if relevant(path, source.raw):
            modules[path] = Module(source, tree, layout, path)
            collect(source)
        lap("  index")
    facts: dict[str, Linked] = {}
    summaries: dict[str, FileSummary] = {}
    for number in range(ROUNDS):
        for path, module in modules.items():
            if number > 1 and not facts[path].again:
                continue
            if number:
                module.attach(_sent(facts[path], Linked))
            summary = (module.declarations, module.summary, module.revision)[number]()
            received = _sent(summary, FileSummary)
            summaries[path] = summaries[path].revised(received) if number > 1 else received
        lap(f"  summaries, round {number}")
        facts = link(layout, summaries, last=number == ROUNDS - 1)
        lap("  link")
    registry = default_registry()
    for path in list(modules):
        module = modules.pop(path)
        module.attach(_sent(facts[path], Linked))
        module.settings = Settings()
        check_module(module, registry, registry)
        collect(module.source)
    lap("  rules")
    return stages


def _sent(record: T, kind: type[T]) -> T:
    """A record after its way from one step of the run to the next."""
    return decode(encode(record), kind)


class _Collector:
    """Collects garbage as often as torchlint does: after so many bytes of source."""

    def __init__(self) -> None:
        self.size = 0

    def __call__(self, source: SourceFile) -> None:
        self.size += len(source.raw)
        if self.size > COLLECT_BYTES:
            self.size = 0
            gc.collect()


def _measure_commands(sources: Path, tools: Tools, options: argparse.Namespace, times: dict[str, list[float]]) -> None:
    """Wall times of the command lines, each pair in turn."""
    with tempfile.TemporaryDirectory() as caches:
        torchlint = [*tools.torchlint, "--quiet", "--isolated", "--exit-zero", "--jobs", str(JOBS)]
        torchlint += ["--output-format", "concise", str(sources)]
        ruff = [*tools.ruff, "check", "--select", "ALL", "--isolated", "--exit-zero", "--quiet"]
        ruff += ["--output-format", "concise", str(sources)]
        commands: dict[str, list[str]] = {
            "torchlint, cold": [*torchlint, "--no-cache"],
            "ruff, cold": [*ruff, "--no-cache"],
            "torchlint, warm": [*torchlint, "--cache-dir", os.path.join(caches, "torchlint")],
            "ruff, warm": [*ruff, "--cache-dir", os.path.join(caches, "ruff")],
            "torchlint --version": [*tools.torchlint, "--version"],
            "python -c pass": [sys.executable, "-c", "pass"],
        }
        for command in commands.values():  # fills the caches, the tools' and the system's
            _seconds(command)
        for _ in range(options.repeats):
            for name, command in commands.items():
                times[name].append(_seconds(command))
    for _ in range(options.torchfix_repeats):
        times["TorchFix"].append(_seconds([*tools.torchfix, "--select", "ALL", "-j", str(JOBS), str(sources)]))


def _seconds(command: Command) -> float:
    """The wall time of a command that must not fail: findings are let through, errors are not."""
    environment = {**os.environ, "RAYON_NUM_THREADS": str(JOBS)}
    start = perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    seconds = perf_counter() - start
    if done.returncode not in (0, 1):
        raise SystemExit(f"{shlex.join(map(str, command))} failed:\n{done.stderr.decode(errors='replace')[-2000:]}")
    return seconds


def _unwanted_imports(sources: Path, tools: Tools) -> list[str]:
    """Which of the heavy packages torchlint imports on a run over files in which it finds nothing."""
    options = ["--no-cache", "--isolated", "--exit-zero", "--jobs", "1"]
    concise = [*tools.torchlint, *options, "--quiet", "--output-format", "concise", str(sources)]
    report = subprocess.run(concise, capture_output=True, text=True, cwd=sources, check=True).stdout
    dirty = {sources / line.partition(":")[0] for line in report.splitlines()}
    clean = [str(path) for path in sorted(sources.rglob("*.py")) if path not in dirty]
    command = [sys.executable, "-X", "importtime", "-m", "torchlint", *options, *clean]
    done = subprocess.run(command, capture_output=True, text=True, cwd=sources, check=True)
    if "All checks passed" not in done.stdout:
        raise SystemExit(f"the run over clean files was not clean:\n{done.stdout[-2000:]}")
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    return [name for name in UNWANTED if name in imported]


# What it is held to


@dataclass(frozen=True)
class Row:
    """A measurement in seconds beside its anchor: `limit` is the largest ratio that is allowed, None for no promise."""

    name: str
    seconds: float
    anchor: str
    anchor_seconds: float
    limit: float | None = None

    @property
    def ratio(self) -> float:
        return self.seconds / self.anchor_seconds

    @property
    def holds(self) -> bool:
        return self.limit is None or self.ratio <= self.limit


def _rows(times: dict[str, list[float]]) -> list[Row]:
    median = {name: statistics.median(found) for name, found in times.items()}
    start = median["python -c pass"]
    parse = median["ast.parse"]
    rows = [Row("semantics and rules", median["semantics and rules"], "ast.parse", parse, 3.0)]
    rows += [Row(name, seconds, "ast.parse", parse) for name, seconds in median.items() if name.startswith("  ")]
    rows += [
        Row("torchlint, cold", median["torchlint, cold"], "ruff, cold", median["ruff, cold"], 2.0),
        Row("torchlint, warm", median["torchlint, warm"], "ruff, warm + python", median["ruff, warm"] + start, 1.0),
        Row("torchlint --version", median["torchlint --version"], "python -c pass", start, 3.0),
    ]
    if "TorchFix" in median:
        rows.append(Row("torchlint, cold", median["torchlint, cold"], "TorchFix", median["TorchFix"], 0.01))
    return rows


def _table(rows: Iterable[Row]) -> Iterable[str]:
    yield f"{'':<24}{'seconds':>9}  {'anchor':<20}{'seconds':>9}{'ratio':>9}{'limit':>8}"
    for row in rows:
        limit = "" if row.limit is None else f"{row.limit:g}"
        verdict = "" if row.holds else "  over"
        yield (
            f"{row.name:<24}{row.seconds:>9.3f}  {row.anchor:<20}{row.anchor_seconds:>9.3f}"
            f"{row.ratio:>9.3f}{limit:>8}{verdict}"
        )


# What it needs


@dataclass(frozen=True)
class Tools:
    """How to start the three programs."""

    torchlint: list[str] = field(default_factory=lambda: _torchlint())
    ruff: list[str] = field(default_factory=list)
    torchfix: list[str] = field(default_factory=list)

    def versions(self) -> str:
        return ", ".join(_output([*command, "--version"]) for command in (self.torchlint, self.ruff))


def _torchlint() -> list[str]:
    script = shutil.which("torchlint", path=str(Path(sys.executable).parent))
    return [script] if script else [sys.executable, "-m", "torchlint"]


def _tools(options: argparse.Namespace) -> Tools:
    """The tools that the options name, else those of an environment in the folder, made by pip where there is none."""
    if options.ruff and options.torchfix:
        return Tools(ruff=shlex.split(options.ruff), torchfix=shlex.split(options.torchfix))
    home = options.folder / "tools"
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    if not shutil.which("torchfix", path=str(programs)):
        venv.create(home, with_pip=True)
        python = shutil.which("python", path=str(programs)) or str(programs / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "ruff", "torchfix"], check=True)
    found = {name: shutil.which(name, path=str(programs)) or name for name in ("ruff", "torchfix")}
    return Tools(
        ruff=shlex.split(options.ruff) if options.ruff else [found["ruff"]],
        torchfix=shlex.split(options.torchfix) if options.torchfix else [found["torchfix"]],
    )


def _fetch_timm(folder: Path) -> Path:
    """The unpacked source distribution of timm, from the package index where the folder has none."""
    if not any(folder.glob("timm-*.tar.gz")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "timm"]
        subprocess.run([*command, "--dest", str(folder)], check=True)
    archive = max(folder.glob("timm-*.tar.gz"))
    sources = folder / archive.name.removesuffix(".tar.gz")
    if not sources.is_dir():
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(folder, filter="data")
            else:
                tar.extractall(folder)
    return sources


def _read(root: Path) -> dict[str, SourceFile]:
    """Every Python file below a folder that can be read, by posix path."""
    files = {}
    for path in sorted(root.rglob("*.py")):
        with contextlib.suppress(SourceError):
            files[path.relative_to(root).as_posix()] = SourceFile.read(path)
    return files


def _output(command: Command) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _profile(sources: Path) -> None:
    """Where semantics and rules spend their time: the 25 functions with the most time of their own."""
    files = _read(sources)
    profile = cProfile.Profile()
    profile.runcall(_analyse, files, sources)
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Time torchlint beside ast.parse, ruff and TorchFix on timm's sources."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the sources and the other tools are kept")
    parser.add_argument(
        "--repeats", type=int, default=5, help="how often everything but TorchFix is timed (default: 5)"
    )
    parser.add_argument("--torchfix-repeats", type=int, default=1, help="how often TorchFix is timed; it takes minutes")
    parser.add_argument("--sources", type=Path, help="other sources than timm's")
    parser.add_argument("--ruff", metavar="COMMAND", help="how to start ruff (default: from an environment in FOLDER)")
    parser.add_argument("--torchfix", metavar="COMMAND", help="how to start TorchFix (default: likewise)")
    parser.add_argument(
        "--stages", action="store_true", help="only time the work in this process, and print it as JSON"
    )
    parser.add_argument("--profile", action="store_true", help="only profile torchlint's work on one core")
    return parser


if __name__ == "__main__":
    sys.exit(main())
