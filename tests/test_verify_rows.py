"""Rows on planted workloads: what is wrong, slow, empty, hanging or crashing is told as such, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from verify_benches import READS, READS_ONCE, bench, options  # noqa: E402

from torchlint.runtime_verify.children import Limits  # noqa: E402
from torchlint.runtime_verify.comparison import compare, compare_distributions, flatten  # noqa: E402
from torchlint.runtime_verify.records import FailureKind, Policy, Row, Verdict  # noqa: E402
from torchlint.runtime_verify.verification import verify  # noqa: E402
from torchlint.runtime_verify.workload import BenchError  # noqa: E402

GIB = 2**30


def failed(row: Row, kind: FailureKind) -> str:
    """The output of a failed row."""
    assert row.verdict is Verdict.FAILED, row
    assert row.failure is not None
    assert row.failure.kind is kind, row.failure
    output: str = row.failure.output
    return output


def test_a_fix_that_removes_what_it_claims_is_counted_compared_and_timed(tmp_path: Path) -> None:
    row = verify(bench(tmp_path, READS, READS_ONCE), options())
    (syncs,) = row.claimed
    assert (syncs.before, syncs.after) == (4, 1)
    assert row.values is not None
    assert row.values.same
    assert row.timing is not None
    assert row.timing.pairs == 5
    assert row.fixed_by == "hand"
    assert row.quick
    assert row.verdict in (Verdict.FASTER, Verdict.LEANER, Verdict.SLOWER, Verdict.INCONCLUSIVE)


def test_a_wrong_fix_differs(tmp_path: Path) -> None:
    row = verify(bench(tmp_path, READS, READS_ONCE.replace("range(4)", "range(3)")), options())
    assert row.verdict is Verdict.DIFFERS
    assert row.values is not None
    assert [deviation.name for deviation in row.values.deviations] == ["total"]


def test_a_fix_that_removes_nothing_fails_its_mechanism(tmp_path: Path) -> None:
    row = verify(bench(tmp_path, READS, READS.replace("total += ", "total = total + ")), options())
    failed(row, FailureKind.MECHANISM)
    assert row.timing is not None  # the evidence is kept


def test_a_slower_fix_is_slower(tmp_path: Path) -> None:
    slow = READS_ONCE.replace("import torch", "import time\n\nimport torch").replace(
        "    total = 0.0", "    time.sleep(0.02)\n    total = 0.0"
    )
    row = verify(bench(tmp_path, READS, slow), options())
    assert row.verdict is Verdict.SLOWER
    assert row.timing is not None
    assert row.timing.median_after > 0.02


def test_a_faster_fix_is_faster(tmp_path: Path) -> None:
    slow = READS.replace("import torch", "import time\n\nimport torch").replace(
        "    total = 0.0", "    time.sleep(0.02)\n    total = 0.0"
    )
    assert verify(bench(tmp_path, slow, READS_ONCE), options()).verdict is Verdict.FASTER


def test_a_workload_that_torchlint_does_not_fix_is_reported(tmp_path: Path) -> None:
    row = verify(bench(tmp_path, READS), options())
    failed(row, FailureKind.NOT_FIXED)
    assert row.timing is None


def test_a_hanging_version_is_ended_within_its_limit_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    hanging = READS.replace(
        "    total = 0.0",
        "    import pathlib, subprocess, sys\n"
        "    print('waiting for the other rank')\n"
        "    sleeper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"    pathlib.Path({str(note)!r}).write_text(str(sleeper.pid))\n"
        "    sleeper.wait()\n"
        "    total = 0.0",
    )
    begun = time.monotonic()
    row = verify(bench(tmp_path, READS, hanging), options(limits=Limits(seconds=15, memory=4 * GIB)))
    assert time.monotonic() - begun < 60
    assert failed(row, FailureKind.TIMED_OUT) == "waiting for the other rank"
    assert row.failure is not None
    assert row.failure.version == "after"
    assert is_gone(int(note.read_text()))


def test_a_raising_version_is_reported_with_its_traceback(tmp_path: Path) -> None:
    raising = READS.replace("    total = 0.0", "    raise ValueError('no such class:\\n 7')")
    row = verify(bench(tmp_path, READS, raising), options())
    assert "bench.py" in failed(row, FailureKind.CRASHED)
    assert "after the fix failed: it raised ValueError: no such class: 7" in row.reason
    assert "torchlint-verify-" not in row.failure.output


def test_a_dying_version_is_reported_with_its_signal_and_last_output(tmp_path: Path) -> None:
    dying = READS.replace("    total = 0.0", "    import os\n    print('last words')\n    os.kill(os.getpid(), 11)")
    row = verify(bench(tmp_path, dying, READS_ONCE), options())
    assert "last words" in failed(row, FailureKind.CRASHED)
    assert "signal 11 (SIGSEGV)" in row.reason


def test_a_version_that_takes_too_much_memory_is_ended(tmp_path: Path) -> None:
    greedy = READS.replace(
        "    total = 0.0",
        "    import time\n    kept = torch.ones(512 * 2**20 // 4)\n    time.sleep(30)\n    total = 0.0",
    )
    begun = time.monotonic()
    row = verify(bench(tmp_path, greedy, READS_ONCE), options(limits=Limits(seconds=50, memory=GIB // 2)))
    failed(row, FailureKind.OUT_OF_MEMORY)
    assert time.monotonic() - begun < 30


def test_what_a_workload_needs_and_is_not_here_is_not_measured(tmp_path: Path) -> None:
    workload = bench(tmp_path, READS + '\n\nNEEDS = "multi-gpu"\n', READS_ONCE)
    row = verify(workload, options(gpus=1))
    assert row.verdict is Verdict.NOT_MEASURED_HERE
    assert "several GPUs" in row.reason


def test_two_processes_share_a_group(tmp_path: Path) -> None:
    joint = READS.replace(
        "    total = 0.0",
        "    ranks = torch.ones(1)\n    torch.distributed.all_reduce(ranks)\n    total = float(ranks)",
    ).replace("CLAIMS =", "PROCESSES = 2\nCLAIMS =")
    row = verify(
        bench(tmp_path, joint, joint.replace("total += float(state.sum())", "total = total + state.sum()")), options()
    )
    assert row.failure is None or row.failure.kind is FailureKind.MECHANISM, row.failure
    assert row.values is not None
    assert row.timing is not None


def test_a_changed_random_stream_is_compared_by_its_distribution(tmp_path: Path) -> None:
    noisy = READS.replace("CLAIMS =", "SEEDS = 24\nCLAIMS =").replace("state.sum()", "(state * torch.rand(())).sum()")
    other = READS_ONCE.replace("state.sum()", "(state * (1 - torch.rand(()))).sum()")
    row = verify(bench(tmp_path, noisy, other), options())
    assert row.values is not None
    assert row.values.policy is Policy.DISTRIBUTION
    assert row.values.same
    assert "24 seeds" in row.values.note


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CLAIMS = ()", "does not define `run` and `setup`"),
        ("def setup(device, scale): ...\ndef run(state): ...", "`CLAIMS` has to be"),
        ("def setup(:", "cannot be read"),
    ],
)
def test_a_bench_that_keeps_to_no_protocol_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        bench(tmp_path, text)


def is_gone(pid: int) -> bool:
    """Whether a process ends soon; one that nobody waits for stays a zombie."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_process(tmp_path: Path, sent: signal.Signals) -> None:
    note = tmp_path / "pid"
    waiting = READS.replace(
        "    total = 0.0",
        f"    import os, pathlib, time\n    pathlib.Path({str(note)!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n    total = 0.0",
    )
    bench(tmp_path, waiting, READS_ONCE)
    code = (
        "import sys; from pathlib import Path; from torchlint import cli; "
        "from torchlint.runtime_verify import workload; "
        "workload._fixtures = lambda: [Path(sys.argv[1])]; sys.exit(cli.main(['verify', '--device', 'cpu']))"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    run = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
            time.sleep(0.1)
        run.send_signal(sent)
        status = run.wait(30)
    finally:
        run.kill()
    assert is_gone(int(note.read_text()))
    if sent is not signal.SIGKILL:
        assert status == 130
        assert list(temporary.iterdir()) == []


def test_nested_outputs_are_flattened_by_name() -> None:
    flat = flatten({"loss": 1.5, "gradients": {"a.weight": torch.ones(2)}, "steps": [torch.zeros(1), True]})
    assert list(flat) == ["loss", "gradients/a.weight", "steps/0", "steps/1"]
    with pytest.raises(TypeError, match="returned a str as name"):
        flatten({"name": "resnet"})


@pytest.mark.parametrize(
    ("before", "after", "policy", "same"),
    [
        ([0.0, float("nan")], [0.0, float("nan")], Policy.BITWISE, True),
        ([0.0], [-0.0], Policy.BITWISE, False),
        ([0.0], [-0.0], Policy.TOLERANCE, True),
        ([1.0], [1.0001], Policy.BITWISE, False),
        ([1.0], [1.0001], Policy.TOLERANCE, True),
        ([1.0], [1.01], Policy.TOLERANCE, False),
        ([1.0], [float("nan")], Policy.TOLERANCE, False),
        ([float("inf"), 1.0], [float("inf"), 1.0001], Policy.TOLERANCE, True),
        ([float("inf")], [float("-inf")], Policy.TOLERANCE, False),
        ([float("inf")], [1.0], Policy.TOLERANCE, False),
        ([1.0, 1.0], [1.0], Policy.TOLERANCE, False),
    ],
)
def test_values_are_compared_as_strictly_as_asked(
    before: list[float], after: list[float], policy: Policy, same: bool
) -> None:
    values = compare({"x": torch.tensor(before)}, {"x": torch.tensor(after)}, policy, rtol=1e-3)
    assert values.same is same


def test_a_value_that_only_one_version_has_is_a_deviation() -> None:
    values = compare({"a": torch.ones(1)}, {"b": torch.ones(1)}, Policy.TOLERANCE)
    assert [deviation.message for deviation in values.deviations] == [
        "only there before the fix",
        "only there after the fix",
    ]


def test_uniform_numbers_are_no_normal_ones() -> None:
    draw = torch.Generator().manual_seed(0)
    normal = [{"noise": torch.randn(50, generator=draw)} for _ in range(24)]
    again = [{"noise": torch.randn(50, generator=draw)} for _ in range(24)]
    uniform = [{"noise": torch.rand(50, generator=draw)} for _ in range(24)]
    assert compare_distributions(normal, again).same
    assert not compare_distributions(normal, uniform).same
