"""The pieces of `torchlint verify --script` by themselves: copies, verdicts, steps, synchronizations."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

pytest.importorskip("torch")

import torch
from script_projects import tree_hash
from torch import nn

from torchlint.runtime_verify.records import Verdict
from torchlint.runtime_verify.script import compare, project_copy
from torchlint.runtime_verify.script.exchange import Boundary, End, Observed, Request
from torchlint.runtime_verify.script.fixes import Fix
from torchlint.runtime_verify.script.guard import CopyOnWrite, RefusedError
from torchlint.runtime_verify.script.reach import watched_lines
from torchlint.runtime_verify.script.run import Measured, Run, Version
from torchlint.runtime_verify.script.steps import Steps, Stop
from torchlint.runtime_verify.script.syncs import SyncCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# Verdicts

SEEN = Observed(
    end=End.REACHED,
    boundary=Boundary.OPTIMIZER,
    steps=8,
    durations=(0.01,) * 8,
    elapsed=0.08,
    losses=(3.0, 2.0, 1.5),
    peak_bytes=1_000_000,
    memory="resident memory",
    streams={"torch": "a"},
)
NOISE = (1.0, 1.004, 0.997, 1.002, 0.995, 1.001)


def runs(
    name: str, seconds: float, pairs: int = 6, syncs: int = 2, printed_nan: bool = False, **changes: Any
) -> Measured:
    """A version whose steps take about so long."""
    seen = msgspec.structs.replace(SEEN, **changes)
    measured = Measured(Version(name), Run(1.0, msgspec.structs.replace(seen, syncs=(syncs,) * 8)))
    for number in range(pairs):
        step = seconds * NOISE[number % len(NOISE)]
        timed = msgspec.structs.replace(seen, durations=(step,) * 8, elapsed=step * 8)
        measured.timed.append(Run(1.0, timed, prints_nan=printed_nan))
    return measured


def verdict(original: Measured, other: Measured) -> Verdict:
    return compare.compare(original, other, ()).verdict


def test_less_time_is_faster() -> None:
    found = compare.compare(runs("original", 0.010), runs("fixed", 0.008), ())
    assert found.verdict is Verdict.FASTER
    assert found.step is not None
    assert found.step.ratio == pytest.approx(1.25, rel=0.01)
    assert 1 < found.step.low <= found.step.ratio <= found.step.high


def test_more_time_is_slower() -> None:
    assert verdict(runs("original", 0.010), runs("fixed", 0.012)) is Verdict.SLOWER


def test_the_same_time_is_no_gain() -> None:
    assert verdict(runs("original", 0.010), runs("fixed", 0.010)) is Verdict.NO_GAIN


def test_a_gain_below_three_percent_is_none() -> None:
    assert verdict(runs("original", 0.01015), runs("fixed", 0.010)) is Verdict.NO_GAIN


def test_fewer_synchronizations_or_less_memory_in_the_same_time_is_leaner() -> None:
    assert verdict(runs("original", 0.010, syncs=2), runs("fixed", 0.010, syncs=0)) is Verdict.LEANER
    assert verdict(runs("original", 0.010), runs("fixed", 0.010, peak_bytes=500_000)) is Verdict.LEANER


def test_few_pairs_are_no_evidence_however_large_the_difference() -> None:
    found = runs("original", 0.010, pairs=5), runs("fixed", 0.001, pairs=5)
    assert verdict(*found) is Verdict.INCONCLUSIVE


def test_one_pair_of_runs_bounds_nothing() -> None:
    found = compare.ratio([((2.0, 2.1), (1.0, 1.1))], max)
    assert (found.low, found.high) == (0.0, float("inf"))


def test_times_that_vary_widely_are_inconclusive() -> None:
    fixed = runs("fixed", 0.010)
    for number, factor in enumerate((0.5, 2.0, 0.7, 1.6, 0.6, 1.9)):
        seen = fixed.timed[number].observed
        assert seen is not None
        steps = tuple(step * factor for step in seen.durations)
        changed = msgspec.structs.replace(seen, durations=steps, elapsed=sum(steps))
        fixed.timed[number] = Run(1.0, changed)
    assert verdict(runs("original", 0.010), fixed) is Verdict.INCONCLUSIVE


def test_a_faster_step_in_a_slower_run_is_inconclusive() -> None:
    fixed = runs("fixed", 0.008)
    for number, run in enumerate(fixed.timed):
        assert run.observed is not None
        fixed.timed[number] = Run(1.0, msgspec.structs.replace(run.observed, elapsed=0.2))
    assert verdict(runs("original", 0.010), fixed) is Verdict.INCONCLUSIVE


def test_another_loss_differs_unless_rounding_explains_it() -> None:
    original = runs("original", 0.010)
    assert verdict(original, runs("fixed", 0.010, losses=(3.0, 2.0, 1.5001))) is Verdict.NO_GAIN
    assert verdict(original, runs("fixed", 0.005, losses=(3.0, 2.0, 1.52))) is Verdict.DIFFERS
    assert verdict(original, runs("fixed", 0.005, losses=())) is Verdict.DIFFERS


def test_nan_in_one_version_differs_and_in_both_does_not() -> None:
    nan = (3.0, float("nan"), float("nan"))
    assert verdict(runs("original", 0.010), runs("fixed", 0.005, losses=nan)) is Verdict.DIFFERS
    assert verdict(runs("original", 0.010, losses=nan), runs("fixed", 0.005, losses=nan)) is Verdict.FASTER
    assert verdict(runs("original", 0.010), runs("fixed", 0.005, printed_nan=True)) is Verdict.DIFFERS
    later = (3.0, 2.0, float("nan"))
    assert verdict(runs("original", 0.010, losses=nan), runs("fixed", 0.005, losses=later)) is Verdict.DIFFERS


def test_another_random_stream_is_compared_as_a_whole() -> None:
    torch.manual_seed(0)
    first, second = (tuple(torch.randn(50).tolist()) for _ in range(2))
    original = runs("original", 0.010, losses=first)
    same = compare.compare(original, runs("fixed", 0.010, losses=second, streams={"torch": "b"}), ()).losses
    assert same is not None
    assert same.agree
    assert same.streams == ("torch",)
    shifted = tuple(loss + 2 for loss in second)
    assert verdict(original, runs("fixed", 0.010, losses=shifted, streams={"torch": "b"})) is Verdict.DIFFERS


def test_a_version_that_fails_differs() -> None:
    found = runs("fixed", 0.010)
    found.timed[3] = Run(1.0, None, "it was ended by signal 11 (SIGSEGV)", "last words")
    judged = compare.compare(runs("original", 0.010), found, ())
    assert judged.verdict is Verdict.DIFFERS
    assert judged.output == "last words"


def test_files_that_come_from_the_original_are_no_evidence() -> None:
    fix = Fix("TL101", "sync-in-loop", "train.py", 3, "", "safe")
    found = runs("fixed", 0.005)
    assert found.survey.observed is not None
    found.survey = Run(1.0, msgspec.structs.replace(found.survey.observed, foreign=("train.py",)))
    assert compare.compare(runs("original", 0.010), found, (fix,)).verdict is Verdict.INCONCLUSIVE


# Steps


def stopping(request: Request, program: Callable[[Steps], object]) -> Steps:
    steps = Steps(request, lambda: None, None)
    with suppress(Stop):
        program(steps)
    return steps


def request(steps: int = 10, warmup: int = 2, boundary: Boundary = Boundary.AUTO, skip: int = 0) -> Request:
    return Request("", (), "", "", (), "", "", steps, warmup, 100.0, 0, boundary, skip)


def test_several_optimizers_make_one_step() -> None:
    first, second = object(), object()

    def program(steps: Steps) -> None:
        for _ in range(100):
            steps.optimizer_stepped(first)
            steps.optimizer_stepped(second)

    found = stopping(request(), program)
    assert (found.done, found.end, len(found.durations)) == (10, End.REACHED, 8)


def test_an_optimizer_that_is_left_gives_way_to_its_successor() -> None:
    first, second = object(), object()

    def program(steps: Steps) -> None:
        for _ in range(3):
            steps.optimizer_stepped(first)
        for _ in range(100):
            steps.optimizer_stepped(second)

    assert stopping(request(), program).end is End.REACHED


def test_batches_before_the_first_optimizer_step_are_no_steps() -> None:
    def program(steps: Steps) -> None:
        steps.trains()
        for _ in range(50):
            steps.batch_asked_for()
            steps.forward_called()
        for _ in range(6):
            steps.batch_asked_for()
            steps.optimizer_stepped(program)
        steps.finish(End.FINISHED)

    found = stopping(request(), program)
    assert (found.boundary, found.done, found.end) == (Boundary.OPTIMIZER, 6, End.FINISHED)


def test_what_lies_between_two_passes_is_no_step_but_counts_for_the_whole() -> None:
    def program(steps: Steps) -> None:
        for _ in range(5):
            for _ in range(4):
                steps.batch_asked_for()
                steps.forward_called()
            steps.batch_asked_for()
            steps.epoch_ended()

    found = stopping(request(), program)
    assert (found.boundary, found.done, len(found.durations)) == (Boundary.LOADER, 10, 8)
    assert found.elapsed > sum(found.durations)


def test_known_batches_are_counted_as_the_survey_counted_them() -> None:
    def program(steps: Steps) -> None:
        for _ in range(100):
            steps.batch_asked_for()

    found = stopping(request(boundary=Boundary.LOADER, skip=7), program)
    assert (found.skipped, found.done) == (7, 10)


# Synchronizations


@pytest.mark.parametrize(
    ("program", "reads"),
    [
        (lambda x: x.sum().item(), 1),
        (lambda x: [float(row.sum()) for row in x], 3),
        (lambda x: bool((x > 0).all()), 1),
        (lambda x: x[x > 0], 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: x.numpy(), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: x.detach().cpu().numpy(), 1),
        (lambda x: (x @ x.T).relu().sum(), 0),
        (lambda x: x[torch.tensor([0, 1])], 0),
        (lambda x: x.clone().masked_fill_(x > 0, 0.0), 0),
    ],
)
def test_reads_are_counted(
    program: Callable[[torch.Tensor], object], reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchlint.runtime_verify.script import syncs

    for name in ("cpu", "numpy", "tolist"):
        monkeypatch.setattr(torch.Tensor, name, getattr(torch.Tensor, name))
    counter = SyncCounter()
    x = torch.randn(3, 3)
    syncs.watch_host_methods(counter)
    with counter:
        program(x)
    assert counter.total == reads, counter.counted


def test_a_pause_holds_reads_of_host_tensors_back() -> None:
    counter = SyncCounter()
    with counter:
        with counter.paused():
            torch.ones(1).item()
        torch.ones(1).item()
    assert counter.total == 1


def test_a_training_step_with_adam_reads_nothing_but_what_its_code_reads() -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    counter = SyncCounter()
    handles = register_optimizer_step_pre_hook(counter.hold), register_optimizer_step_post_hook(counter.release)
    net = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(net.parameters(), foreach=False)
    with counter:
        for _ in range(3):
            loss = net(torch.randn(8, 4)).pow(2).mean()
            loss.backward()
            optimizer.step()
            loss.item()
    for handle in handles:
        handle.remove()
    assert counter.total == 3


# Copies


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A project with code, data, an environment and links."""
    folder = tmp_path / "user"
    for name in ("data", "package", ".git", "env", "outside"):
        (folder / name).mkdir(parents=True)
    (folder / "train.py").write_text("import package\n")
    (folder / "package" / "__init__.py").write_text("")
    (folder / "weights.bin").write_bytes(bytes(project_copy.LARGE_FILE + 1))
    for number in range(project_copy.LARGE_FOLDER_FILES + 1):
        (folder / "data" / f"{number}.txt").write_text("sample")
    (folder / ".git" / "config").write_text("")
    (folder / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "more.txt").write_text("more")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "alias.py").symlink_to("train.py")
    (folder / "broken").symlink_to("nowhere")
    return folder


def test_code_is_copied_and_data_is_linked(user: Path, tmp_path: Path) -> None:
    before = tree_hash(user)
    found = project_copy.snapshot(user, tmp_path / "store")
    project_copy.materialize(found, tmp_path / "copy", {"train.py": b"fixed\n"})
    copy = tmp_path / "copy"
    assert sorted(os.listdir(copy)) == ["alias.py", "data", "linked", "outside", "package", "train.py", "weights.bin"]
    assert (copy / "train.py").read_bytes() == (copy / "alias.py").read_bytes() == b"fixed\n"
    assert [name for name in sorted(os.listdir(copy)) if (copy / name).is_symlink()] == [
        *("alias.py", "data", "linked", "weights.bin")
    ]
    assert found.sources == ("train.py", "package/__init__.py")
    assert str(tmp_path / "elsewhere") in found.protected
    assert tree_hash(user) == before


def test_everything_can_be_copied_up_to_a_limit(user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = project_copy.snapshot(user, tmp_path / "store", copy_everything=True)
    assert not (tmp_path / "store" / "weights.bin").is_symlink()
    assert set(found.links) == {"linked", "alias.py"}
    monkeypatch.setattr(project_copy, "MOST_BYTES", 1_000_000)
    with pytest.raises(project_copy.CopyError, match="--project"):
        project_copy.snapshot(user, tmp_path / "again", copy_everything=True)


def test_removing_a_copy_leaves_what_it_links_to(user: Path, tmp_path: Path) -> None:
    before = tree_hash(user), tree_hash(tmp_path / "elsewhere")
    copy = tmp_path / "copy"
    project_copy.materialize(project_copy.snapshot(user, tmp_path / "store"), copy, {})
    (copy / "package").chmod(0o500)
    project_copy.remove(copy)
    project_copy.remove(copy)
    assert not copy.exists()
    assert (tree_hash(user), tree_hash(tmp_path / "elsewhere")) == before


def test_a_write_turns_a_link_into_a_copy(user: Path, tmp_path: Path) -> None:
    before = tree_hash(user)
    found = project_copy.snapshot(user, tmp_path / "store")
    copy = tmp_path / "copy"
    project_copy.materialize(found, copy, {})
    fence = CopyOnWrite(str(copy), found.protected)
    fence.make_writable(str(copy / "data" / "7.txt"))
    (copy / "data" / "7.txt").write_text("changed")
    fence.make_writable(str(copy / "data" / "8.txt"), parent_only=True)
    (copy / "data" / "8.txt").unlink()
    fence.make_writable(str(copy / "weights.bin"))
    (copy / "weights.bin").write_bytes(b"new")
    assert len(os.listdir(copy / "data")) == project_copy.LARGE_FOLDER_FILES
    with pytest.raises(RefusedError):
        fence.make_writable(str(user / "data" / "7.txt"))
    fence.make_writable(str(tmp_path / "anywhere.txt"))
    assert tree_hash(user) == before


# Places of fixes


@pytest.mark.parametrize(
    ("line", "lines"),
    [(1, (1, 1)), (4, (6, 7)), (5, (6, 7)), (7, (6, 7)), (8, (8, 8)), (9, (9, 9))],
)
def test_the_lines_that_show_that_a_fix_has_run(line: int, lines: Sequence[int]) -> None:
    source = b"import torch\n\n\n@decorated\ndef test(x):\n    y = call(\n        x.item())\nfor x in y:\n    test(x)\n"
    watched = watched_lines(Fix("TL401", "", "a.py", line, "", "safe"), source)
    assert (watched.first, watched.last) == tuple(lines)
