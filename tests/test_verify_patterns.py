"""What the events of a run show: each habit in a small program that has it, and in one that nearly does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset, TensorDataset

from torchlint.runtime_verify.patterns import PATTERNS, Match, find, unobservable
from torchlint.runtime_verify.recording import Kind, Node, Recording, Site, TensorNote, record

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = str(Path(__file__))
LINES = Path(__file__).read_text().split("\n")


def line_of(mark: str) -> int:
    """The line that ends in a comment with this mark."""
    (line,) = (number for number, text in enumerate(LINES, 1) if text.endswith(f"# {mark}"))
    return line


def matches(name: str, recording: Recording) -> list[Match]:
    return [match for match in find(recording) if match.pattern == name]


def seen_on_cpu(name: str, program: Callable[[], object]) -> list[Match]:
    return matches(name, record(program))


def on_device(recording: Recording, device: str) -> Recording:
    """A recording as a GPU would have given it: results on this device are on "cuda", which is there."""

    def moved(note: TensorNote | None) -> TensorNote | None:
        return msgspec.structs.replace(note, device="cuda") if note is not None and note.device == device else note

    def changed(node: Node) -> Node:
        call = node.call
        if call is not None:
            settings = {**call.settings, "fp32_precision": "ieee"}
            call = msgspec.structs.replace(call, result=moved(call.result), settings=settings)
        return msgspec.structs.replace(node, call=call, children=tuple(map(changed, node.children)))

    return Recording(tuple(map(changed, recording.roots)), "cuda", (9, 0))


def test_every_retired_pattern_has_a_twin_with_a_rule() -> None:
    assert {pattern.retired for pattern in PATTERNS} == {
        "ExtraCUDACopyPattern",
        "ForLoopIndexingPattern",
        "FP32MatMulPattern",
        "OptimizerSingleTensorPattern",
        "SynchronizedDataLoaderPattern",
        "GradNotSetToNonePattern",
        "Conv2dBiasFollowedByBatchNorm2dPattern",
        "MatMulDimInFP16Pattern",
    }
    assert len({pattern.code for pattern in PATTERNS}) == len(PATTERNS)


def test_without_a_gpu_three_patterns_cannot_be_seen() -> None:
    names = {pattern.name for pattern in unobservable(Recording(()))}
    assert names == {"create-then-copy", "tf32-not-allowed", "unaligned-dimension"}
    assert not unobservable(Recording((), "cuda", (8, 0)))


# create-then-copy


def copied_at_once() -> None:
    for _ in range(3):
        torch.zeros(4).to("meta")  # created and copied


def copied_after_a_while() -> None:
    mask = torch.ones(4)  # filled here
    mask.to("meta")  # copied here


def worked_on_before_the_copy() -> None:
    x = torch.zeros(4)
    x[1] = 1
    x.to("meta")


def made_on_the_device() -> None:
    torch.zeros(4, device="meta")


def a_copy_of_what_was_loaded() -> None:
    torch.stack([torch.arange(3)]).to("meta")


def cast_on_the_host() -> None:
    torch.zeros(4).to(torch.float64)


def test_a_tensor_that_is_created_then_copied() -> None:
    (match,) = matches("create-then-copy", on_device(record(copied_at_once), "meta"))
    line = line_of("created and copied")
    assert (match.place, match.made, match.count) == (Site(HERE, line), Site(HERE, line), 3)
    assert "`zeros`" in match.seen
    (match,) = matches("create-then-copy", on_device(record(copied_after_a_while), "meta"))
    assert match.place == Site(HERE, line_of("copied here"))
    assert match.made == Site(HERE, line_of("filled here"))


@pytest.mark.parametrize(
    "program", [worked_on_before_the_copy, made_on_the_device, a_copy_of_what_was_loaded, cast_on_the_host]
)
def test_other_copies_are_not_created_then_copied(program: Callable[[], object]) -> None:
    assert not matches("create-then-copy", on_device(record(program), "meta"))


# loop-indexing


def rows_one_by_one() -> None:
    table = torch.zeros(20, 3)
    for row in range(20):
        table[row] = row  # indexed


def rows_of_two_tensors() -> None:
    x, y = torch.rand(12, 3), torch.rand(12, 3)
    for i in range(12):
        torch.add(x[i], y[i, 0])  # both indexed


def nine_rows() -> None:
    table = torch.zeros(9, 3)
    for row in range(9):
        table[row] = row


def the_same_row_again() -> None:
    table = torch.zeros(20, 3)
    for _ in range(20):
        table[0].sum()


def the_first_of_each_batch() -> None:
    for _ in range(20):
        torch.rand(4, 3)[0].sum()


def a_recurrence() -> None:
    cell = nn.GRUCell(3, 3)
    x, h = torch.rand(15, 2, 3), torch.zeros(2, 3)
    for t in range(15):
        h = cell(x[t], h)


def a_dataset_is_indexed() -> None:
    class Rows(Dataset[Any]):
        def __init__(self) -> None:
            self.x = torch.rand(30, 3)

        def __len__(self) -> int:
            return 30

        def __getitem__(self, index: int) -> torch.Tensor:
            return self.x[index]

    for _ in DataLoader(Rows(), batch_size=15):
        pass


def slices() -> None:
    x = torch.rand(100, 3)
    for start in range(0, 100, 5):
        x[start : start + 5].sum()


def test_rows_that_are_indexed_one_by_one() -> None:
    (match,) = seen_on_cpu("loop-indexing", rows_one_by_one)
    assert match.place == Site(HERE, line_of("indexed"))
    assert "20 rows" in match.seen
    (match,) = seen_on_cpu("loop-indexing", rows_of_two_tensors)
    assert (match.place, match.count) == (Site(HERE, line_of("both indexed")), 2)


@pytest.mark.parametrize(
    "program", [nine_rows, the_same_row_again, the_first_of_each_batch, a_recurrence, a_dataset_is_indexed, slices]
)
def test_other_indexing_is_no_loop_over_rows(program: Callable[[], object]) -> None:
    assert not seen_on_cpu("loop-indexing", program)


# tf32-not-allowed and unaligned-dimension


def product(dtype: torch.dtype, *sizes: int) -> Callable[[], object]:
    def program() -> None:
        layer = nn.Linear(sizes[1], sizes[2], dtype=dtype)  # layer
        layer(torch.ones(sizes[0], sizes[1], dtype=dtype))  # product

    return program


def test_float32_products_in_full_precision() -> None:
    recording = on_device(record(product(torch.float32, 16, 8, 24)), "cpu")
    (match,) = matches("tf32-not-allowed", recording)
    assert match.place == Site(HERE, line_of("product"))
    assert "[16, 8] @ [8, 24]" in match.seen
    assert not matches("tf32-not-allowed", msgspec.structs.replace(recording, capability=(7, 5)))
    assert not matches("tf32-not-allowed", on_device(record(product(torch.bfloat16, 16, 8, 24)), "cpu"))


def test_products_with_tf32_allowed_are_fine() -> None:
    recording = on_device(record(product(torch.float32, 16, 8, 24)), "cpu")

    def allowed(node: Node) -> Node:
        call = node.call and msgspec.structs.replace(node.call, settings={"fp32_precision": "tf32"})
        return msgspec.structs.replace(node, call=call, children=tuple(map(allowed, node.children)))

    assert not matches("tf32-not-allowed", Recording(tuple(map(allowed, recording.roots)), "cuda", (9, 0)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dimensions_that_are_no_multiple_of_eight(dtype: torch.dtype) -> None:
    (match,) = matches("unaligned-dimension", on_device(record(product(dtype, 16, 8, 27)), "cpu"))
    assert match.place == Site(HERE, line_of("product"))
    assert match.made == Site(HERE, line_of("layer"))
    assert "27 is no multiple of 8" in match.seen
    assert not matches("unaligned-dimension", on_device(record(product(dtype, 16, 8, 24)), "cpu"))


def test_float32_dimensions_need_no_multiple_of_eight() -> None:
    assert not matches("unaligned-dimension", on_device(record(product(torch.float32, 16, 8, 27)), "cpu"))


def test_the_dtype_is_the_one_under_autocast() -> None:
    def program() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            nn.Linear(8, 27)(torch.ones(16, 8))

    assert matches("unaligned-dimension", on_device(record(program), "cpu"))


# single-tensor-optimizer and grads-set-to-zero


def train(
    settings: dict[str, bool], optimizer: Any = torch.optim.SGD, *, set_to_none: bool = True
) -> Callable[[], object]:
    def program() -> None:
        model = nn.Linear(3, 2)
        trainer = optimizer(model.parameters(), lr=0.1, **settings)  # optimizer
        for _ in range(3):
            trainer.zero_grad(set_to_none=set_to_none)  # zeroed
            torch.autograd.backward(model(torch.ones(4, 3)).sum())
            trainer.step()  # stepped

    return program


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_an_optimizer_that_goes_through_its_parameters_one_by_one(optimizer: Any) -> None:
    (match,) = seen_on_cpu("single-tensor-optimizer", train({"foreach": False}, optimizer))
    assert match.place == Site(HERE, line_of("stepped"))
    assert match.made == Site(HERE, line_of("optimizer"))
    assert match.count == 3
    assert optimizer.__name__ in match.seen


@pytest.mark.parametrize("settings", [{"foreach": True}, {"fused": True}, {}])
def test_an_optimizer_that_takes_all_at_once_or_was_told_nothing_is_fine(settings: dict[str, bool]) -> None:
    assert not seen_on_cpu("single-tensor-optimizer", train(settings))


def test_on_a_gpu_one_by_one_counts_whoever_chose_it() -> None:
    recording = msgspec.structs.replace(record(train({})), accelerator="cuda")
    assert matches("single-tensor-optimizer", recording)


def test_one_parameter_is_one_by_one_anyway() -> None:
    def program() -> None:
        weight = nn.Parameter(torch.ones(3))
        torch.autograd.backward(weight.sum())
        torch.optim.SGD([weight], lr=0.1, foreach=False).step()

    assert not seen_on_cpu("single-tensor-optimizer", program)


@pytest.mark.parametrize("settings", [{"foreach": False}, {"foreach": True}, {}])
def test_gradients_that_are_set_to_zero(settings: dict[str, bool]) -> None:
    (match,) = seen_on_cpu("grads-set-to-zero", train(settings, set_to_none=False))
    assert match.place == Site(HERE, line_of("zeroed"))


def test_a_module_that_sets_its_gradients_to_zero() -> None:
    def program() -> None:
        model = nn.Linear(3, 2)
        torch.autograd.backward(model(torch.ones(4, 3)).sum())
        model.zero_grad(set_to_none=False)  # zeroed by the module

    (match,) = seen_on_cpu("grads-set-to-zero", program)
    assert match.place == Site(HERE, line_of("zeroed by the module"))


def test_gradients_that_are_let_go_and_zeros_elsewhere_are_fine() -> None:
    def program() -> None:
        train({})()
        torch.zeros(3).zero_()

    assert not seen_on_cpu("grads-set-to-zero", program)


# synchronous-loader


def load(workers: int) -> Callable[[], object]:
    def program() -> None:
        loader = DataLoader(  # loader
            TensorDataset(torch.rand(6, 2)), batch_size=2, num_workers=workers
        )
        for _ in loader:  # batches
            pass
        assert len(iter(loader)) == 3

    return program


def test_a_loader_without_workers() -> None:
    (match,) = seen_on_cpu("synchronous-loader", load(0))
    assert match.place == Site(HERE, line_of("batches"))
    assert match.made == Site(HERE, line_of("loader"))
    assert match.count == 3


def test_a_loader_with_workers_is_fine() -> None:
    assert not seen_on_cpu("synchronous-loader", load(1))


def test_a_loader_that_nobody_asks_is_fine() -> None:
    assert not seen_on_cpu("synchronous-loader", lambda: DataLoader(TensorDataset(torch.rand(4, 2))))


# bias-before-norm


class Net(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)  # layers run
        return result


def test_a_bias_that_the_norm_takes_away() -> None:
    def program() -> None:
        conv = nn.Conv2d(3, 4, 3)  # conv
        net = Net(conv, nn.BatchNorm2d(4))
        for _ in range(2):
            net(torch.rand(2, 3, 8, 8))

    (match,) = seen_on_cpu("bias-before-norm", program)
    assert match.place == Site(HERE, line_of("layers run"))
    assert match.made == Site(HERE, line_of("conv"))
    assert match.count == 2


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ((nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4)), (2, 3, 8)),
        ((nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4)), (2, 3, 8, 8)),
        ((nn.Conv3d(3, 4, 3), nn.InstanceNorm3d(4)), (2, 3, 8, 8, 8)),
        ((nn.Linear(3, 4), nn.BatchNorm1d(4)), (2, 3)),
    ],
)
def test_other_layers_whose_bias_is_taken_away(layers: tuple[nn.Module, ...], shape: tuple[int, ...]) -> None:
    assert seen_on_cpu("bias-before-norm", lambda: Net(*layers)(torch.rand(shape)))


@pytest.mark.parametrize(
    "layers",
    [
        (nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)),
        (nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4)),
        (nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.BatchNorm2d(4)),
        (nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)),
        (nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)),
    ],
)
def test_a_bias_that_does_something_is_fine(layers: tuple[nn.Module, ...]) -> None:
    assert not seen_on_cpu("bias-before-norm", lambda: Net(*layers)(torch.rand(2, 3, 8, 8)))


def test_a_norm_beside_the_convolution_is_not_after_it() -> None:
    def program() -> None:
        x = torch.rand(2, 3, 8, 8)
        conv, norm = nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)
        conv(x)
        norm(x)

    assert not seen_on_cpu("bias-before-norm", program)


# the recording itself


def test_what_the_work_raises_is_raised_and_everything_is_put_back() -> None:
    before = (nn.Module.__init__, DataLoader.__init__, DataLoader.__iter__)

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        record(lambda: Broken()(torch.rand(2)))
    assert (nn.Module.__init__, DataLoader.__init__, DataLoader.__iter__) == before
    (match,) = seen_on_cpu("grads-set-to-zero", train({}, set_to_none=False))
    assert match.count > 0


def test_marks_stay_balanced_when_a_forward_fails_and_the_work_goes_on() -> None:
    class Picky(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] > 1:
                raise ValueError("too many")
            return F.relu(x)

    def program() -> None:
        outer = nn.Sequential(Picky())
        with pytest.raises(ValueError, match="too many"):
            outer(torch.rand(2))
        outer(torch.rand(1))

    recording = record(program)
    assert [call.name for call, _ in recording.calls(Kind.MODULE)] == ["Sequential", "Picky", "Sequential", "Picky"]
    outermost = [node.call for node in recording.roots if node.call is not None]
    assert [call.name for call in outermost if call.kind is Kind.MODULE] == ["Sequential", "Sequential"]


def test_work_on_torch_that_never_calls_it_records_nothing() -> None:
    assert find(record(lambda: sum(range(10)))) == ()
