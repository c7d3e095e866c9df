"""From evidence to verdicts, and what is kept of them. None of it needs torch."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from torchlint.runtime_verify import page_section, results
from torchlint.runtime_verify.records import (
    Deviation,
    Environment,
    FailureKind,
    Measurement,
    Policy,
    Row,
    Table,
    Timing,
    Unit,
    Values,
    Verdict,
)
from torchlint.runtime_verify.statistics import ratio_of_medians, same_distribution
from torchlint.runtime_verify.verdict import judge

if TYPE_CHECKING:
    from pathlib import Path

SAME = Values(Policy.BITWISE, 3, 0.0)
FEWER_SYNCS = Measurement("host_syncs", "syncs", Unit.COUNT, 32, 2, "operators", claimed=True)
AS_MANY_SYNCS = msgspec.structs.replace(FEWER_SYNCS, after=32)
PLACE = Environment("cpu", "Some CPU (R) @ 2.0GHz", "2.13.0", "3.11", "0.1.0", "Some CPU", 2, 1, "Linux x86_64")


def timing(ratio: float, low: float, high: float) -> Timing:
    return Timing((ratio,), (1.0,), ratio, low, high, ratio, 1.0)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "expected"),
    [
        (1.20, 1.10, 1.30, Verdict.FASTER),
        (1.02, 1.01, 1.03, Verdict.LEANER),  # the interval is above 1, but the gain is not worth the word
        (1.20, 0.99, 1.40, Verdict.LEANER),
        (1.00, 0.99, 1.01, Verdict.LEANER),
        (0.99, 0.90, 1.10, Verdict.INCONCLUSIVE),  # a loss is not ruled out
        (0.90, 0.85, 0.95, Verdict.SLOWER),
    ],
)
def test_verdict_on_a_fix_that_removes_what_it_claims(ratio: float, low: float, high: float, expected: Verdict) -> None:
    assert judge(SAME, [FEWER_SYNCS], timing(ratio, low, high), True).verdict is expected


@pytest.mark.parametrize(
    ("ratio", "low", "high", "expected"),
    [
        (1.20, 1.10, 1.30, Verdict.FASTER),
        (1.00, 0.99, 1.02, Verdict.NO_GAIN),
        (1.10, 0.98, 1.20, Verdict.INCONCLUSIVE),
        (0.99, 0.90, 1.10, Verdict.INCONCLUSIVE),
        (0.90, 0.85, 0.95, Verdict.SLOWER),
    ],
)
def test_verdict_on_a_fix_that_only_time_can_show(ratio: float, low: float, high: float, expected: Verdict) -> None:
    assert judge(None, [], timing(ratio, low, high), False).verdict is expected


def test_a_faster_fix_that_removes_nothing_of_what_it_claims_fails() -> None:
    judgement = judge(SAME, [AS_MANY_SYNCS], timing(2.0, 1.9, 2.1), True)
    assert judgement.verdict is Verdict.FAILED
    assert judgement.failure is not None
    assert judgement.failure.kind is FailureKind.MECHANISM
    assert "syncs 32 to 32" in judgement.reason


def test_all_of_what_is_claimed_has_to_fall() -> None:
    bytes_stay = Measurement("bytes_to_device", "bytes", Unit.BYTES, 100, 100, "operators", claimed=True)
    assert judge(SAME, [FEWER_SYNCS, bytes_stay], timing(2.0, 1.9, 2.1), True).verdict is Verdict.FAILED


def test_a_claim_of_which_nothing_was_counted_fails() -> None:
    assert judge(SAME, [], timing(2.0, 1.9, 2.1), True).verdict is Verdict.FAILED


def test_a_faster_fix_that_computes_something_else_differs() -> None:
    differs = Values(Policy.BITWISE, 1, 0.5, deviations=(Deviation("loss", "differs", 0.5),))
    judgement = judge(differs, [FEWER_SYNCS], timing(2.0, 1.9, 2.1), True)
    assert judgement.verdict is Verdict.DIFFERS
    assert "loss" in judgement.reason


@pytest.mark.parametrize(("after", "moves"), [(0.95, False), (0.5, True)])
def test_waited_seconds_have_to_fall_by_more_than_their_noise(after: float, moves: bool) -> None:
    wait = Measurement("loader_wait", "wait", Unit.SECONDS, 1.0, after, "median", claimed=True)
    assert (judge(SAME, [wait], timing(1.0, 0.99, 1.01), True).verdict is Verdict.LEANER) is moves


def test_the_interval_holds_the_ratio_that_the_times_were_made_with() -> None:
    noise = random.Random(1)
    before = [1.5 * noise.gauss(1, 0.05) for _ in range(30)]
    after = [noise.gauss(1, 0.05) for _ in range(30)]
    interval = ratio_of_medians(before, after)
    assert interval.low < 1.5 < interval.high
    assert interval.low > 1.3
    assert interval == ratio_of_medians(before, after)


def test_a_drift_of_both_does_not_widen_the_interval() -> None:
    drift = [1 + pair / 10 for pair in range(30)]
    assert ratio_of_medians([2 * seconds for seconds in drift], drift) == (2.0, 2.0, 2.0)


def test_unpaired_times_have_no_ratio() -> None:
    with pytest.raises(ValueError, match="pairs are wanted"):
        ratio_of_medians([1.0], [])


def test_samples_of_one_distribution_are_told_from_those_of_two() -> None:
    draw = random.Random(3)
    first, second = ([draw.gauss(0, 1) for _ in range(24)] for _ in range(2))
    assert same_distribution(first, second) > 0.05
    assert same_distribution(first, [value + 5 for value in second]) < 1e-6
    assert same_distribution(first, first) == 1.0


def row(code: str, measured: str, verdict: Verdict = Verdict.LEANER) -> Row:
    return Row(code, "some-rule", verdict, "it fell", measured, "A workload.", timing=timing(1.1, 1.0, 1.2))


def test_the_newest_row_of_a_rule_is_found_among_devices(tmp_path: Path) -> None:
    gpu = msgspec.structs.replace(PLACE, device="cuda", device_name="NVIDIA H200")
    results.save(Table(PLACE, "2026-01-01", (row("TL101", "2026-01-01"),)), tmp_path)
    results.save(Table(gpu, "2026-03-01", (row("TL101", "2026-03-01"),)), tmp_path)
    results.save(Table(PLACE, "2026-02-01", (row("TL101", "2026-02-01"),)), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cpu-some-cpu-r-2-0ghz.json",
        "cuda-nvidia-h200.json",
    ]
    newest = results.newest_row("TL101", tmp_path)
    assert newest is not None
    assert (newest.row.measured, newest.environment.device) == ("2026-03-01", "cuda")
    assert results.newest_row("TL999", tmp_path) is None


def test_a_run_is_kept_while_one_of_its_rows_is_the_newest(tmp_path: Path) -> None:
    both = Table(PLACE, "2026-01-01", (row("TL101", "2026-01-01"), row("TL201", "2026-01-01")))
    again = [Table(PLACE, f"2026-01-0{day}", (row("TL101", f"2026-01-0{day}"),)) for day in (2, 3)]
    for table in (both, *again):
        path = results.save(table, tmp_path)
    assert results.read(path).runs == (both, again[1])


@pytest.mark.parametrize("content", ["", "[]", '{"runs": []}', '{"format": 99, "runs": []}', '{"format": 1}'])
def test_a_file_that_holds_no_results_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    path = results.path_for(PLACE, tmp_path)
    path.write_text(content)
    with pytest.raises(results.ResultsError, match=path.name):
        results.save(Table(PLACE, "2026-01-01"), tmp_path)
    assert path.read_text() == content
    assert results.newest_row("TL101", tmp_path) is None


def test_a_page_ends_with_what_was_measured_last(tmp_path: Path) -> None:
    assert page_section.section("TL101", tmp_path) == ""
    results.save(Table(PLACE, "2026-01-01", (row("TL101", "2026-01-01"),)), tmp_path)
    shown = page_section.section("TL101", tmp_path)
    assert shown.startswith("## Measured\n**leaner**: it fell.\n")
    assert "1.1x (1 to 1.2)" in shown
    assert "times on a GPU are not measured yet" in shown


def test_a_rule_is_shown_without_importing_torch() -> None:
    code = (
        "import sys; from torchlint.cli import main; status = main(['rule', 'TL101']); "
        "sys.exit(status or int('torch' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


def test_without_torch_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchlint import cli
    from torchlint.runtime_verify import verify_command

    monkeypatch.setattr(verify_command.importlib.util, "find_spec", lambda name: None)
    assert cli.main(["verify"]) == 2
    assert capsys.readouterr().err == f"error: verify: {verify_command.INSTALL}\n"
    assert "torchlint[verify]" in verify_command.INSTALL
