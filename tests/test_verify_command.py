"""`torchlint verify` from the command line: what is measured, shown and kept."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from command_line import CommandLine

pytest.importorskip("torch")

from verify_benches import READS, READS_ONCE, bench

from torchlint.runtime_verify import environment, results, verify_command, workload
from torchlint.runtime_verify.records import Environment

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has one planted workload stand in for those that ship; results are kept in the test's folder."""

    def plant(after: str) -> None:
        place = tmp_path / "planted"
        place.mkdir()
        bench(place, READS, after)
        monkeypatch.setattr(workload, "_fixtures", lambda: [place])
        monkeypatch.setattr(results, "save", lambda table, save=results.save: save(table, tmp_path / "results"))

    return plant


def test_a_measured_row_is_shown_and_kept(run: CommandLine, planted: Callable[[str], None], tmp_path: Path) -> None:
    planted(READS_ONCE)
    done = run("verify", "TL101", "--device", "cpu", "--quick", "--output", "json", "--save", "--memory-snapshot", "m")
    assert '"TL101"' in done.out
    assert verify_command.NO_GPU in done.out
    assert verify_command.SNAPSHOT_NEEDS_CUDA in done.err
    assert "[4/4] TL101 rule: timing" in done.err.replace("sync-in-loop", "rule")
    newest = results.newest_row("TL101", tmp_path / "results")
    assert newest is not None
    assert newest.row.quick
    assert done.status == int(newest.row.verdict.is_bad)


def test_a_wrong_fix_ends_the_run_with_status_1(run: CommandLine, planted: Callable[[str], None]) -> None:
    planted(READS_ONCE.replace("range(4)", "range(5)"))
    done = run("verify", "--device", "cpu", "--quick", "-q")
    assert done.status == 1
    assert "differs" in done.out
    assert done.err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["TL001"], "nothing to measure for TL001: it is about comments"),
        (["TL110"], "'TL110' is no rule"),
        (["--sweep", "cat-lenght"], "'cat-lenght'"),
    ],
)
def test_wrong_usage_is_one_line(run: CommandLine, arguments: list[str], message: str) -> None:
    done = run("verify", "--device", "cpu", *arguments)
    assert done.status == 2
    assert message in done.err
    assert done.err.count("\n") == 1


def test_an_environment_can_be_stored_and_tells_no_names() -> None:
    text = msgspec.json.encode(environment.describe("cpu", 1))
    assert msgspec.json.decode(text, type=Environment).threads == 1
    for name in (socket.gethostname(), str(Path.home()), str(Path.cwd())):
        assert name.encode() not in text or len(name) < 3


@pytest.mark.parametrize(("load", "said"), [(0.3, False), (1000.0, True)])
def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch, load: float, said: bool) -> None:
    monkeypatch.setattr(environment.os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert bool(environment.busyness()) is said
