"""`torchlint verify --script`, from the user's files to the report: child processes run real scripts on the CPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

pytest.importorskip("torch")

from script_projects import DIGITS, MNIST, STEP, TRAINING, project, survey, tree_hash

from torchlint.config import ConfigError
from torchlint.runtime_verify.records import Verdict
from torchlint.runtime_verify.script import command, report
from torchlint.runtime_verify.script.exchange import Boundary, End, Observed
from torchlint.runtime_verify.script.fixes import Fix, Fixed, Fixer, Selection
from torchlint.runtime_verify.script.run import Options
from torchlint.runtime_verify.script.verify import NothingToFix, Wishes, place_of, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlint.runtime_verify.script.outcome import Report
    from torchlint.runtime_verify.script.project_copy import Snapshot
    from torchlint.runtime_verify.script.run import Measured

MAIN = "import sys; from torchlint.runtime_verify.script.command import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small tensors are slowed by threads, the more the busier the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(autouse=True, scope="module")
def temporary() -> Iterator[Path]:
    """The folder that all workspaces of this module are made in.

    A loader's workers talk through sockets below it, whose paths hold 107 bytes: pytest's own folders are too deep.
    """
    with tempfile.TemporaryDirectory(prefix="tl-") as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        yield Path(folder)
        tempfile.tempdir = before


def observed(measured: Measured) -> Observed:
    assert measured.survey.observed is not None, measured.survey
    return measured.survey.observed


def verified(
    script: Path,
    *arguments: str,
    fixer: Fixer | None = None,
    codes: tuple[str, ...] | None = None,
    seconds: float = 300,
) -> Report:
    """The report of a quick verification: one pair of runs, which is too few for a verdict on the time."""
    options = Options(str(script), arguments, steps=12, warmup=2, pairs=1, seconds=seconds)
    place = place_of(script, None, script.parent)
    wishes = Wishes(Selection(codes))
    return verify(place, options, wishes, fixer) if fixer else verify(place, options, wishes)


def planted(file: str, old: str, new: str) -> Fixer:
    """A fixer that replaces a text, whatever that does."""

    def fixer(found: Snapshot, selection: Selection) -> Fixed:
        text = found.read(file).decode()
        assert old in text
        fix = Fix("TL999", "planted", file, 1, "replace a text", "safe")
        return Fixed({file: text.replace(old, new).encode()}, (fix,))

    return fixer


# A script like pytorch/examples' mnist


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("user") / "mnist", main=MNIST, digits=DIGITS)


@pytest.fixture(scope="module")
def mnist_report(mnist: Path, temporary: Path) -> Report:
    before = tree_hash(mnist.parent)
    options = Options(str(mnist), ("--save-model",), steps=20, warmup=2, pairs=1, seconds=120)
    found = verify(place_of(mnist, None, mnist.parent), options, Wishes(Selection(), "code"))
    assert tree_hash(mnist.parent) == before
    assert list(temporary.iterdir()) == []
    return found


def test_every_fix_of_the_script_is_made(mnist_report: Report) -> None:
    assert {fix.code for fix in mnist_report.comparison.fixes} >= {"TL101", "TL301", "TL401"}
    assert {fix.file for fix in mnist_report.comparison.fixes} == {"main.py"}


def test_both_versions_have_the_same_loss_curve(mnist_report: Report) -> None:
    losses = mnist_report.comparison.losses
    assert losses is not None
    assert len(losses.before) == 20
    assert losses.before == losses.after
    assert losses.agree


def test_synchronizations_per_step_are_counted(mnist_report: Report) -> None:
    assert mnist_report.boundary == "optimizer steps"
    assert mnist_report.comparison.syncs is not None
    before, after = mnist_report.comparison.syncs
    # Steps 3 to 20: one read each, and after 8 and 16 steps an evaluation of two batches with two reads each.
    assert before == pytest.approx((18 + 2 * 4) / 18)
    # What is left: one read at the end of each epoch's training, and two at the end of its evaluation.
    assert after == pytest.approx(2 * 3 / 18)


def test_one_pair_of_runs_is_no_evidence_of_time(mnist_report: Report) -> None:
    assert mnist_report.comparison.verdict is Verdict.INCONCLUSIVE
    assert "pairs" in mnist_report.comparison.reason
    assert mnist_report.comparison.step is not None
    assert mnist_report.comparison.step.before > 0


def test_bisecting_measures_each_code_alone(mnist_report: Report) -> None:
    parts = {part.fixes[0].code: part for part in mnist_report.parts}
    assert set(parts) == {fix.code for fix in mnist_report.comparison.fixes}
    assert all({fix.code for fix in part.fixes} == {code} for code, part in parts.items())
    assert parts["TL101"].syncs is not None
    assert parts["TL401"].syncs is not None
    assert parts["TL101"].syncs[1] < parts["TL101"].syncs[0]
    assert parts["TL401"].syncs[1] == parts["TL401"].syncs[0]


@pytest.mark.parametrize("form", report.FORMATS)
def test_the_report_shows_the_numbers_in_every_format(mnist_report: Report, form: str) -> None:
    text = report.render(mnist_report, form)
    assert "TL101" in text
    assert "main.py" in text
    assert "inconclusive" in text
    if form == "json":
        assert json.loads(text)["comparison"]["verdict"] == "inconclusive"
    if form == "html":
        assert "data:image/svg+xml" in text


def test_text_of_the_user_is_no_markup_in_a_report(mnist_report: Report) -> None:
    evil = "[bold]<script>alert(1)</script>|\x1b[2J"
    shown = msgspec.structs.replace(mnist_report, arguments=(evil,), notes=(evil,))
    assert "<script>" not in report.render(shown, "html")
    assert "<script>" not in report.render(shown, "markdown")
    assert "\x1b" not in report.render(shown, "table")
    assert "[bold]" in report.render(shown, "table")


# What goes wrong


def test_a_script_that_never_steps(tmp_path: Path) -> None:
    script = project(tmp_path, train=f"{TRAINING}\nprint('nothing to do')\nnet.eval()\nprint(net(torch.ones(4)))\n")
    found = verified(script)
    assert found.comparison.verdict is Verdict.FAILED
    assert "never stepped" in found.comparison.reason
    assert "nothing to do" in found.comparison.output


def test_a_script_that_crashes(tmp_path: Path) -> None:
    body = (
        f"{TRAINING}\nfor step in range(4):\n{STEP}\nnet.eval()\nprint(net(torch.ones(4)))\nraise OSError('no disk')\n"
    )
    found = verified(project(tmp_path, train=body))
    assert found.comparison.verdict is Verdict.FAILED
    assert "it crashed: OSError: no disk" in found.comparison.reason
    assert "OSError: no disk" in found.comparison.output
    assert "instrument.py" not in found.comparison.output


def test_a_script_that_is_killed(tmp_path: Path) -> None:
    body = f"{TRAINING}\nimport os, signal\nprint('so long', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    found = survey(project(tmp_path, train=body))
    assert "SIGKILL" in found.failure
    assert "so long" in found.survey.output


def test_a_script_that_hangs_is_ended_in_time_and_says_where(tmp_path: Path) -> None:
    body = f"{TRAINING}\nimport time\ndef wait_forever():\n    time.sleep(1000)\nprint('here')\nwait_forever()\n"
    begun = time.monotonic()
    found = survey(project(tmp_path, train=body), seconds=10)
    assert time.monotonic() - begun < 40
    assert "within 10 s" in found.failure
    assert "here" in found.survey.output
    assert "wait_forever" in found.survey.output


def test_a_slow_script_is_measured_as_far_as_it_comes(tmp_path: Path) -> None:
    body = f"{TRAINING}\nimport time\nfor step in range(10_000):\n    time.sleep(0.5)\n{STEP}"
    seen = observed(survey(project(tmp_path, train=body), steps=1000, seconds=15))
    assert seen.end is End.BUDGET
    assert 3 <= len(seen.durations) < 30
    assert min(seen.durations) >= 0.5


def test_wrong_arguments_are_shown_as_the_script_says(mnist: Path) -> None:
    found = verified(mnist, "--no-such-option")
    assert found.comparison.verdict is Verdict.FAILED
    assert "unrecognized arguments: --no-such-option" in found.comparison.output


def test_a_fix_that_makes_the_loss_nan_differs(mnist: Path) -> None:
    fixer = planted(
        "main.py", "loss = F.nll_loss(model(data), target)", "loss = F.nll_loss(model(data), target) * float('nan')"
    )
    found = verified(mnist, fixer=fixer)
    assert found.comparison.verdict is Verdict.DIFFERS
    assert "NaN in one version only: with all fixes" in found.comparison.reason
    assert "nan" in found.comparison.output


def test_a_fix_that_changes_the_loss_differs(mnist: Path) -> None:
    found = verified(mnist, fixer=planted("main.py", "lr=1.0", "lr=0.5"))
    assert found.comparison.verdict is Verdict.DIFFERS
    assert found.comparison.losses is not None
    assert not found.comparison.losses.streams
    assert found.comparison.losses.largest > found.comparison.losses.tolerance


def test_a_fix_that_crashes_differs_and_shows_its_output(mnist: Path) -> None:
    found = verified(mnist, fixer=planted("main.py", "optimizer.step()", "optimizer.stride()"))
    assert found.comparison.verdict is Verdict.DIFFERS
    assert "no attribute 'stride'" in found.comparison.reason
    assert "AttributeError" in found.comparison.output


def test_a_fix_that_draws_other_random_numbers_is_said_to(mnist: Path) -> None:
    old, new = "model = Net().to(device)", "torch.randn(1)\n    model = Net().to(device)"
    found = verified(mnist, fixer=planted("main.py", old, new))
    assert found.comparison.losses is not None
    assert found.comparison.losses.streams == ("torch",)
    assert "another order" in found.comparison.losses.note


def test_nothing_to_fix_is_said_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(NothingToFix):
        verified(project(tmp_path, train="raise SystemExit('must not run')\n"))


def test_fixes_in_files_that_the_script_does_not_import_are_no_gain(tmp_path: Path) -> None:
    script = project(tmp_path, train=f"{TRAINING}\nfor step in range(20):\n{STEP}", main=MNIST, digits=DIGITS)
    found = verified(script)
    assert found.comparison.verdict is Verdict.NO_GAIN
    assert {fix.file for fix in found.idle} == {"main.py"}


def test_fixes_that_the_steps_do_not_come_to_are_not_judged(mnist: Path) -> None:
    options = Options(str(mnist), steps=6, warmup=2, pairs=1, seconds=300)  # an epoch has eight
    place = place_of(mnist, None, mnist.parent)
    alone = verify(place, options, Wishes(Selection(("TL401",))))
    assert alone.comparison.verdict is Verdict.INCONCLUSIVE
    assert "none of the fixed lines" in alone.comparison.reason
    assert alone.comparison.step is None
    (note,) = verify(place, options, Wishes(Selection(("TL101", "TL401")))).notes
    assert note.count("TL101") == 2
    assert note.count("TL401") == 1


# What a step is


def test_inference_steps_are_batches_after_those_that_run_no_module(tmp_path: Path) -> None:
    body = """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        loader = DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=4)
        mean = sum(x.mean() for (x,) in loader) / len(loader)
        net = nn.Linear(4, 2)
        with torch.no_grad():
            for epoch in range(5):
                for (x,) in loader:
                    net(x - mean).argmax(dim=1).tolist()
        print("must not come so far")
    """
    found = survey(project(tmp_path, predict=body), steps=15, warmup=2)
    seen = observed(found)
    assert seen.boundary is Boundary.LOADER
    assert (seen.end, seen.steps) == (End.REACHED, 15)
    assert seen.skipped == 12  # ten batches and the end of the first pass, and the first batch of the second
    assert seen.syncs == (1,) * 13
    assert "so far" not in found.survey.output
    assert seen.losses == ()


def test_accumulated_gradients_make_one_step(tmp_path: Path) -> None:
    body = f"""{TRAINING}
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(400, 4)), batch_size=4)
scaler = torch.amp.GradScaler("cpu", enabled=True)
for number, (x,) in enumerate(loader, 1):
    loss = net(x).pow(2).mean() / 4
    scaler.scale(loss).backward()
    if number % 4 == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
    seen = observed(survey(project(tmp_path, train=body), steps=10, warmup=2))
    assert seen.boundary is Boundary.OPTIMIZER
    assert seen.steps == 10
    assert len(seen.durations) == 8
    assert len(seen.losses) == 40


def test_a_short_script_is_measured_over_the_steps_that_it_makes(tmp_path: Path) -> None:
    found = survey(
        project(tmp_path, train=f"{TRAINING}\nfor step in range(5):\n{STEP}\nprint('end')\n"), steps=50, warmup=2
    )
    seen = observed(found)
    assert (seen.end, seen.steps, len(seen.durations)) == (End.FINISHED, 5, 3)
    assert "end" in found.survey.output


def test_compiled_modules_and_steps_are_seen(tmp_path: Path) -> None:
    body = f"{TRAINING}\nnet = torch.compile(net, backend='eager')\nfor step in range(20):\n{STEP}"
    script = project(tmp_path, train=body + "\nnet.eval()\n")
    found = verified(script, fixer=planted("train.py", "nn.Linear(4, 2)", "nn.Linear(4, 2, bias=True)"))
    assert found.comparison.losses is not None
    assert len(found.comparison.losses.before) == 12
    assert found.comparison.losses.agree


# How a script is run and ended


def test_a_script_winds_up_when_it_is_stopped(tmp_path: Path) -> None:
    body = f"""{TRAINING}
import atexit
atexit.register(print, "atexit ran")
try:
    for step in range(100):
        try:
{STEP.replace("    ", "            ")}
        except Exception:
            print("swallowed")
finally:
    print("finally ran")
"""
    found = survey(project(tmp_path, train=body))
    assert observed(found).end is End.REACHED
    assert found.survey.output.split("\n") == ["finally ran", "atexit ran"]


def test_a_script_that_catches_everything_is_ended_nevertheless(tmp_path: Path) -> None:
    steps = STEP.replace("    ", "        ")
    body = f"{TRAINING}\nwhile True:\n    try:\n{steps}\n    except BaseException:\n        print('no')\n"
    found = survey(project(tmp_path, train=body))
    assert observed(found).steps >= 6
    assert observed(found).end is End.REACHED


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loader_workers_run_and_end(tmp_path: Path, method: str) -> None:
    body = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader
from digits import Digits

def main():
    net = nn.Linear(64, 10)
    optimizer = torch.optim.Adam(net.parameters())
    loader = DataLoader(Digits(64), batch_size=8, num_workers=2, multiprocessing_context="{method}")
    for epoch in range(10):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x.flatten(1)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

if __name__ == "__main__":
    main()
"""
    found = survey(project(tmp_path, train=body, digits=DIGITS), steps=12, warmup=2)
    assert observed(found).end is End.REACHED
    assert observed(found).steps == 12
    assert observed(found).syncs == (0,) * 10  # neither the sampler's nor Adam's own reads count
    assert found.survey.notes == ()


def test_a_module_of_a_package_may_import_its_siblings_relatively(tmp_path: Path) -> None:
    project(tmp_path, helper="SIZE = 4\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "sizes.py").write_text("WIDTH = 4\n")
    script = tmp_path / "package" / "train.py"
    script.write_text(f"from .sizes import WIDTH\n{TRAINING}\nfor step in range(20):\n{STEP}\nnet.eval()\n")
    options = Options(str(script), steps=6, warmup=1, pairs=1, seconds=300)
    fixer = planted("package/train.py", "lr=0.1", "lr=0.10")
    found = verify(place_of(script, None, tmp_path), options, Wishes(Selection()), fixer)
    assert found.comparison.losses is not None
    assert found.comparison.losses.agree


def test_a_script_that_writes_next_to_itself_changes_nothing_of_the_users(tmp_path: Path) -> None:
    folder = tmp_path / "user"
    body = f"""{TRAINING}
import os, pathlib, subprocess
here = pathlib.Path(__file__).parent
os.makedirs(here / "checkpoints", exist_ok=True)
for step in range(5):
{STEP}
    torch.save(net.state_dict(), here / "checkpoints" / "last.pt")
    torch.save(net.state_dict(), "large.bin")
(here / "log.txt").write_text("new")
os.remove("old.txt")
with open("data/part-0000.txt", "a") as file:
    file.write("more")
for target in (pathlib.Path({str(folder)!r}) / "log.txt", pathlib.Path({str(folder)!r}) / "fresh.txt"):
    try:
        target.write_text("bad")
    except PermissionError:
        print("refused")
subprocess.run(["sh", "-c", "echo bad > {folder}/log.txt"])
"""
    script = project(folder, train=body)
    (folder / "log.txt").write_text("mine")
    (folder / "old.txt").write_text("old")
    (folder / "large.bin").write_bytes(bytes(17 * 2**20))
    (folder / "data").mkdir()
    for number in range(1_100):
        (folder / "data" / f"part-{number:04}.txt").write_text("sample")
    before = tree_hash(folder)
    found = survey(script, steps=50)
    assert tree_hash(folder) == before
    assert observed(found).end is End.FINISHED, found.survey.output
    assert found.survey.output.count("refused") == 2
    assert set(observed(found).refused) == {str(folder / "log.txt"), str(folder / "fresh.txt")}


# The command


def test_it_runs_nothing_without_consent_where_there_is_no_terminal(mnist: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "--script", str(mnist)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    assert done.returncode == 2
    assert "executes your code" in done.stderr
    assert "--yes" in done.stderr
    assert done.stdout == ""


def test_wrong_usage_is_one_clear_line(mnist: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such script"):
        command.main(["--script", str(tmp_path / "none.py"), "--yes"])
    with pytest.raises(ConfigError, match="TL99"):
        command.main(["--script", str(mnist), "--yes", "--fix-codes", "TL99"])
    with pytest.raises(ConfigError, match="--warmup"):
        command.main(["--script", str(mnist), "--yes", "--steps", "5", "--warmup", "5"])
    with pytest.raises(ConfigError, match="--project"):
        command.main(["--script", str(mnist), "--yes", "--project", str(tmp_path)])


def is_gone(group: int) -> bool:
    """Whether a process group comes to its end; the dead count until their parent has taken note of them."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, temporary: Path) -> None:
    body = f"""{TRAINING}
import os, pathlib, subprocess, sys, time
def test():
    net.eval()
    print(net(torch.ones(4)))
test()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path({str(tmp_path / "marks" / "started")!r}).write_text(str(os.getpgid(0)))
time.sleep(600)
"""
    script = project(tmp_path / "user", train=body)
    workspaces, marks = temporary / "c", tmp_path / "marks"
    workspaces.mkdir()
    marks.mkdir()
    before = tree_hash(script.parent)
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "--script", str(script), "--yes"],
        env={**os.environ, "TMPDIR": str(workspaces)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 300
        started = marks / "started"
        while not (started.exists() and started.read_text()):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0
    assert list(workspaces.iterdir()) == []
    assert tree_hash(script.parent) == before
    assert is_gone(int(started.read_text()))
