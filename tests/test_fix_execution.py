"""Fixes are executed: the code before and after gives the same results, and the waste is gone.

Each piece of code is repaired with `--fix --unsafe-fixes`, then both texts run on the stand-in for torch and, where
torch is installed, on torch itself. How many reads and moves are left is counted on the stand-in alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import fake_torch
import pytest
from command_line import CommandLine

if TYPE_CHECKING:
    from pathlib import Path

Names = dict[str, Any]
Repair = Callable[[str, str], tuple[Names, Names]]

PREAMBLE = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.modes = []

    def forward(self, x):
        self.modes.append(torch.is_grad_enabled())
        return torch.cat([row.view(1, 2) for row in x]) * self.scale[0]


"""


@pytest.fixture(params=["stand-in", *(["torch"] if importlib.util.find_spec("torch") else [])])
def torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that `import torch` gives in this test."""
    if request.param == "stand-in":
        fake_torch.install(monkeypatch)
    return importlib.import_module("torch")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake_torch.install(monkeypatch)
    return importlib.import_module("torch")


@pytest.fixture
def repair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Repair:
    """Gives the names that a piece of code binds, as it was and as one rule's fixes leave it."""

    def both(code: str, body: str) -> tuple[Names, Names]:
        text = PREAMBLE + textwrap.dedent(body)
        path = tmp_path / "code.py"
        path.write_text(text, encoding="utf-8")
        run = CommandLine(capsys)
        done = run("--isolated", "--no-cache", "--select", code, "--fix", "--unsafe-fixes", path)
        assert done.status == 0, done
        fixed = path.read_text(encoding="utf-8")
        assert fixed != text
        return _run(text), _run(fixed)

    return both


def _run(text: str) -> Names:
    names: Names = {"__name__": "code"}
    exec(compile(text, "code.py", "exec"), names)
    return names


def plain(value: Any) -> Any:
    """Tensors as (dtype, device, values), so that results can be compared; containers item by item."""
    if hasattr(value, "dtype"):
        return str(value.dtype), str(value.device), value.tolist()
    if isinstance(value, tuple | list):
        return type(value)(plain(item) for item in value)
    return value


def counts(action: Callable[[], Any]) -> tuple[int, int]:
    """How many reads and moves an action on the stand-in costs."""
    fake_torch.state.syncs = fake_torch.state.moves = 0
    action()
    return fake_torch.state.syncs, fake_torch.state.moves


def batches(torch: Any, number: int) -> list[Any]:
    rows = [[[0.5, 2.0], [3.0, 1.0]], [[1.0, 0.25], [0.125, 4.0]], [[2.0, 1.5], [0.0, 8.0]]]
    return [(torch.tensor(rows[n % 3]), torch.tensor([1, n % 2])) for n in range(number)]


SUMS = {
    "plain": """
        def train(model: nn.Module, loader, optimizer, device, log):
            total = 0.0
            for x, y in loader:
                loss = model(x.to(device)).mean()
                loss.backward()
                total += loss.item()
            return total
        """,
    "weighted": """
        def train(model: nn.Module, loader, optimizer, device, log):
            total, seen = 0.0, 0
            running = 0.0
            for x, y in loader:
                loss = model(x.to(device)).mean()
                loss.backward()
                running += loss.item() * x.size(0)
                seen += x.size(0)
            return total, running / max(seen, 1)
        """,
    "counts": """
        def train(model: nn.Module, loader, optimizer, device, log):
            right = 0
            for x, y in loader:
                scores = model(x.to(device))
                scores.mean().backward()
                right += (scores.argmax(dim=1) == y.to(device)).sum().item()
            return right, f"{right} right"
        """,
    "read now and then": """
        def train(model: nn.Module, loader, optimizer, device, log):
            total = 0.0
            for step, (x, y) in enumerate(loader):
                loss = model(x.to(device)).mean()
                loss.backward()
                total += loss.item()
                if (step + 1) % 2 == 0:
                    log(total / (step + 1))
            return total
        """,
    "epochs": """
        def train(model: nn.Module, loader, optimizer, device, log):
            history = []
            for epoch in range(2):
                total = 0.0
                for x, y in loader:
                    loss = model(x.to(device)).mean()
                    loss.backward()
                    total += loss.item() / len(loader)
                history.append(total)
            return history
        """,
}


@pytest.mark.parametrize("number", [0, 1, 4])  # powers of two keep the sums exact in float32
@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in SUMS.items()])
def test_a_sum_on_the_device_is_the_same_number(torch: Any, repair: Repair, body: str, number: int) -> None:
    before, after = repair("TL101", body)
    results: list[tuple[Any, list[Any]]] = []
    for names in (before, after):
        logged: list[Any] = []
        loader = batches(torch, number)
        results.append((names["train"](names["Net"](), loader, None, "cpu", logged.append), logged))
    assert results[0] == results[1]
    assert repr(results[0]) == repr(results[1])  # numbers of the same types, no tensors


def test_a_sum_on_the_device_is_read_once(stand_in: Any, repair: Repair) -> None:
    before, after = repair("TL101", SUMS["plain"])
    loader = batches(stand_in, 4)
    assert counts(lambda: before["train"](before["Net"](), loader, None, "cpu", None))[0] == 4
    assert counts(lambda: after["train"](after["Net"](), loader, None, "cpu", None))[0] == 1


GROWTH = {
    "from an empty tensor": """
        def grow(parts, start):
            out = torch.empty(0, 2)
            for part in parts:
                out = torch.cat((out, part))
            return out
        """,
    "from an empty vector": """
        def grow(parts, start):
            out = torch.tensor([])
            for part in parts:
                out = torch.cat([out, part], dim=0)
            return out
        """,
    "from a full tensor": """
        def grow(parts, start):
            out = torch.ones(1, 2)
            for part in parts:
                out = torch.cat((out, part, part * 2))
            return out
        """,
    "newest first": """
        def grow(parts, start):
            out = torch.zeros(1, 2)
            for part in parts:
                out = torch.cat((part, out))
            return out
        """,
    "from None": """
        def grow(parts, start):
            out = None
            for part in parts:
                if out is None:
                    out = part
                else:
                    out = torch.cat((out, part))
            return out
        """,
    "from None in one expression": """
        def grow(parts, start):
            out = None
            for part in parts:
                out = part if out is None else torch.cat([out, part])
            return out
        """,
    "from a list": """
        def grow(parts, start):
            out = []
            for part in parts:
                out = part if len(out) == 0 else torch.cat((out, part), dim=1)
            return out
        """,
    "along the columns": """
        def grow(parts, start):
            out = torch.zeros(2, 1)
            for part in parts:
                out = torch.cat((out, part), dim=-1)
            return out
        """,
    "some are left out": """
        def grow(parts, start):
            out = torch.zeros(1, 2)
            for number, part in enumerate(parts):
                if number == 1:
                    continue
                if number == 3:
                    break
                out = torch.cat((out, part))
            return out
        """,
    "an inner loop": """
        def grow(parts, start):
            found = []
            for part in parts:
                line = torch.zeros(0)
                for row in part:
                    line = torch.cat((line, row))
                found.append(line)
            return found
        """,
    "an attribute": """
        class Holder:
            def fill(self, parts):
                self.out = torch.zeros(1, 2)
                for part in parts:
                    self.out = torch.cat((self.out, part))
                return self.out


        def grow(parts, start):
            return Holder().fill(parts)
        """,
}


@pytest.mark.parametrize("whole", [False, True], ids=["floats", "integers"])
@pytest.mark.parametrize("number", [0, 1, 2, 5])
@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in GROWTH.items()])
def test_one_join_gives_what_many_gave(torch: Any, repair: Repair, body: str, number: int, whole: bool) -> None:
    before, after = repair("TL203", body)
    parts = [x.to(torch.int64) if whole else x for x, _ in batches(torch, number)]
    assert plain(before["grow"](parts, None)) == plain(after["grow"](parts, None))


EVALUATIONS = {
    "function": """
        def evaluate(model: nn.Module, loader):
            model.eval()
            return [model(x).argmax(dim=1).tolist() for x, _ in loader]
        """,
    "returned tensor": """
        def evaluate(model: nn.Module, loader):
            return torch.cat([model(x) for x, _ in loader])
        """,
    "method": """
        class Runner:
            def __init__(self, model: nn.Module):
                self.model = model

            def validate(self, loader):
                return sum(self.score(x) for x, _ in loader)

            def score(self, x):
                return self.model(x).mean().item()


        def evaluate(model, loader):
            return Runner(model).validate(loader)
        """,
    "part of a longer function": """
        def main(loader):
            model = Net()
            model.eval()
            found = []
            for x, _ in loader:
                # one line for each batch
                found.append(model(x).argmax(dim=1).tolist())
            return model, found
        """,
}


@pytest.mark.parametrize("name", ["function", "returned tensor", "method"])
def test_an_evaluation_runs_without_gradients(torch: Any, repair: Repair, name: str) -> None:
    before, after = repair("TL401", EVALUATIONS[name])
    results = []
    for names, grads in ((before, True), (after, False)):
        net = names["Net"]()
        results.append(plain(names["evaluate"](net, batches(torch, 3))))
        assert net.modes == [grads] * 3
        assert torch.is_grad_enabled()
    assert results[0] == results[1]


def test_a_part_of_a_function_runs_without_gradients(torch: Any, repair: Repair) -> None:
    before, after = repair("TL401", EVALUATIONS["part of a longer function"])
    (net, found), (fixed_net, fixed_found) = (names["main"](batches(torch, 3)) for names in (before, after))
    assert found == fixed_found
    assert (net.modes, fixed_net.modes) == ([True] * 3, [False] * 3)
    assert torch.is_grad_enabled()


def test_an_evaluation_at_module_level_runs_without_gradients(torch: Any, repair: Repair) -> None:
    before, after = repair(
        "TL401",
        """
        net = Net()
        net.eval()
        best = net(torch.ones(2, 2)).argmax(dim=1).tolist()
        after = torch.is_grad_enabled()
        """,
    )
    assert before["best"] == after["best"]
    assert (before["net"].modes, after["net"].modes) == ([True], [False])
    assert after["after"]


def test_a_generator_leaves_the_mode_of_its_caller_alone(torch: Any, repair: Repair) -> None:
    before, after = repair(
        "TL401",
        """
        def predict(model: nn.Module, loader):
            for x, _ in loader:
                yield model(x).argmax(dim=1).tolist()
        """,
    )
    found = []
    for names, grads in ((before, True), (after, False)):
        net = names["Net"]()
        rows = []
        for row in names["predict"](net, batches(torch, 3)):
            assert torch.is_grad_enabled()
            rows.append(row)
        assert net.modes == [grads] * 3
        found.append(rows)
    assert found[0] == found[1]


MOVES = {
    "zeros": "torch.zeros(2, 3).to(device)",
    "size as a tuple": "torch.ones((2, 3)).to(device)",
    "dtype": "torch.ones(3, dtype=torch.int64).to(device, non_blocking=True)",
    "full": "torch.full((2,), 7).to(device)",
    "float full": "torch.full((2,), 0.5).to(device=device)",
    "values": "torch.tensor([[1, 2], [3, 4]]).to(device)",
    "mixed values": "torch.tensor([1, 2.5]).to(device)",
    "eye": "torch.eye(3).to(torch.device(device))",
    "range": "torch.arange(2, 5).to(device)",
    "longer chain": "torch.arange(4).to(device).view(2, 2)",
    "in an expression": "(torch.ones(3).to(device) + torch.zeros(3).to(device)) * 2",
}


@pytest.mark.parametrize("made", [pytest.param(made, id=name) for name, made in MOVES.items()])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_is_made_on_the_device_is_what_was_moved_there(torch: Any, repair: Repair, made: str, device: str) -> None:
    before, after = repair("TL201", f"def make(device):\n    return {made}\n")
    was, now = before["make"](device), after["make"](device)
    assert (was.shape, was.dtype, str(was.device)) == (now.shape, now.dtype, str(now.device))
    if device == "cpu":  # a meta tensor of torch has no values
        assert plain(was) == plain(now)


def test_what_is_made_on_the_device_is_not_moved(stand_in: Any, repair: Repair) -> None:
    before, after = repair(
        "TL201",
        """
        def make(n, device):
            state = torch.zeros(1, n)
            state = state.to(device)
            mask = torch.ones(n).to(device)
            return state, mask
        """,
    )
    assert counts(lambda: before["make"](3, "cuda"))[1] == 2
    assert counts(lambda: after["make"](3, "cuda"))[1] == 0
    assert plain(before["make"](3, "cuda")) == plain(after["make"](3, "cuda"))


@pytest.mark.parametrize("argument", ["set_to_none=False", "False"])
@pytest.mark.parametrize("owner", ["optimizer", "net"])
def test_gradients_are_dropped_and_the_rest_is_as_before(torch: Any, repair: Repair, argument: str, owner: str) -> None:
    before, after = repair(
        "TL405",
        f"""
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net.scale.grad = torch.ones(1)
        {owner}.zero_grad({argument})
        """,
    )
    assert before["net"].scale.grad.tolist() == [0.0]
    assert after["net"].scale.grad is None
    assert before["net"].scale.tolist() == after["net"].scale.tolist() == [1.0]
