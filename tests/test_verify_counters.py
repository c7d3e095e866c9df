"""Each counter against a program of which the count is known."""

from __future__ import annotations

import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from torchlint.runtime_verify import cuda_counters  # noqa: E402
from torchlint.runtime_verify.counters import (  # noqa: E402
    OperatorCounter,
    SavedTensorCounter,
    graph_breaks,
    loader_wait,
)
from torchlint.runtime_verify.simulated_gpu import DEVICE, DeviceTensor, SimulatedGpu  # noqa: E402

FLOAT = 4


def test_three_reads_of_a_device_value_are_three_syncs() -> None:
    with SimulatedGpu(), OperatorCounter(DEVICE.type) as counter:
        loss = torch.ones(2, device=DEVICE).sum()
        assert [loss.item(), float(loss), int(loss)] == [2.0, 2.0, 2]
    assert counter.counts["host_syncs"] == 3
    assert counter.counts["copies_to_host"] == 0


def test_a_read_of_a_host_value_is_no_sync() -> None:
    with SimulatedGpu(), OperatorCounter(DEVICE.type) as counter:
        assert torch.ones(2).sum().item() == 2.0
        assert torch.ones(2).tolist() == [1.0, 1.0]
    assert counter.counts["host_syncs"] == 0


def test_copies_to_the_host_wait_unless_they_need_not() -> None:
    with SimulatedGpu(), OperatorCounter(DEVICE.type) as counter:
        scores = torch.arange(3, device=DEVICE)
        assert scores.cpu().tolist() == scores.tolist() == [0, 1, 2]
        scores.to("cpu", non_blocking=True)
    assert counter.counts["copies_to_host"] == 3
    assert counter.counts["host_syncs"] == 2


def test_a_mask_as_an_index_makes_the_host_wait() -> None:
    with SimulatedGpu(), OperatorCounter(DEVICE.type) as counter:
        values = torch.tensor([1.0, -1.0, 2.0], device=DEVICE)
        assert values[values > 0].shape == (2,)
        assert values.nonzero().shape == (3, 1)
        assert values[1:].shape == (2,)
    assert counter.counts["host_syncs"] == 2


def test_created_then_moved_is_a_copy_with_its_bytes_and_created_there_is_none() -> None:
    with SimulatedGpu(), OperatorCounter(DEVICE.type) as counter:
        moved = torch.zeros(10, 10).to(DEVICE)
        made = torch.zeros(10, 10, device=DEVICE)
        assert isinstance(moved, DeviceTensor)
        assert isinstance(made, DeviceTensor)
    assert counter.counts["copies_to_device"] == 1
    assert counter.counts["bytes_to_device"] == 100 * FLOAT


def test_values_of_python_cross_to_the_device_either_way() -> None:
    with SimulatedGpu(), OperatorCounter(DEVICE.type) as counter:
        assert torch.tensor([1, 2], device=DEVICE).tolist() == [1, 2]
        assert torch.tensor([1, 2]).to(DEVICE).tolist() == [1, 2]
    assert counter.counts["copies_to_device"] == 2


def test_a_simulated_gpu_trains_like_the_host() -> None:
    def train(device: Any) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        inputs = torch.randn(16, 4).to(device)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(inputs).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    on_host = train(torch.device("cpu"))
    with SimulatedGpu():
        assert train(DEVICE) == on_host
    assert on_host[2] < on_host[0]


def test_a_tensor_that_lost_its_values_is_not_computed_with() -> None:
    lost = torch.empty(2, device="meta")
    with SimulatedGpu(), pytest.raises(RuntimeError, match="loses its values"):
        lost + 1


def test_growing_by_cat_copies_what_was_there_each_time() -> None:
    parts = [torch.ones(1) for _ in range(4)]
    with OperatorCounter() as counter:
        grown = parts[0]
        for part in parts[1:]:
            grown = torch.cat((grown, part))
    assert counter.counts["bytes_copied"] == (2 + 3 + 4) * FLOAT
    assert counter.counts["operator_calls"] == 3


def test_views_and_in_place_operators_allocate_nothing() -> None:
    values = torch.ones(6)
    with OperatorCounter() as counter:
        values.view(2, 3)[0].mul_(2)
    assert counter.counts["bytes_allocated"] == 0
    assert counter.counts["operator_calls"] == 3  # view, select, mul_


def test_the_peak_holds_what_was_there_and_what_lives_at_once() -> None:
    start = torch.ones(1000)
    with OperatorCounter() as counter:
        first = start + 1
        del first
        second = start + 2
        third = second + 3
    assert third.shape == second.shape
    assert counter.counts["bytes_allocated"] == 3 * 1000 * FLOAT
    assert counter.counts["peak_memory"] == (1 + 2) * 1000 * FLOAT


def test_saved_tensors_are_counted_and_parameters_are_not() -> None:
    weight = nn.Parameter(torch.ones(4))
    batch = torch.ones(4, requires_grad=True)
    with SavedTensorCounter() as counter:
        (weight * batch).exp()  # mul keeps both factors, exp its result
    assert counter.counts["saved_tensors"] == 2
    assert counter.counts["saved_bytes"] == 2 * 4 * FLOAT


def test_nothing_is_saved_without_gradients() -> None:
    with SavedTensorCounter() as counter, torch.no_grad():
        (nn.Parameter(torch.ones(4)) * torch.ones(4)).exp()
    assert counter.counts["saved_tensors"] == 0


class Slow(Dataset):  # type: ignore[type-arg]
    """Four items, of which each takes the time that it was given."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


def test_the_wait_for_a_loader_is_the_time_of_its_items() -> None:
    with loader_wait() as slow:
        assert [int(batch) for batch in DataLoader(Slow(0.02), batch_size=1)] == [0, 1, 2, 3]
    with loader_wait() as fast:
        list(DataLoader(Slow(0.0), batch_size=2))
    assert slow.batches == 4
    assert fast.batches == 2
    assert slow.seconds >= 0.08 > fast.seconds


def test_loaders_are_as_before_when_the_measuring_is_over() -> None:
    methods = DataLoader.__iter__, torch.utils.data.dataloader._BaseDataLoaderIter.__next__
    with loader_wait():
        assert methods[0] is not DataLoader.__iter__
    assert methods == (DataLoader.__iter__, torch.utils.data.dataloader._BaseDataLoaderIter.__next__)


def test_a_print_in_compiled_code_breaks_the_graph_once() -> None:
    def whole(x: Any) -> Any:
        return x.sin().cos()

    def broken(x: Any) -> Any:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    assert graph_breaks(whole, torch.ones(3)) == 0
    assert graph_breaks(broken, torch.ones(3)) == 1


def test_events_of_the_driver_are_counted_by_their_names() -> None:
    events = [
        *["cudaLaunchKernel"] * 3,
        *("cudaStreamSynchronize", "Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pageable -> Device)"),
        *("aten::add", "cudaMemcpyAsync", "cudaDeviceSynchronize", "Memcpy DtoD (Device -> Device)"),
    ]
    assert cuda_counters.count_events(events) == {
        "stream_syncs": 1,
        "memcpy_dtoh": 1,
        "memcpy_htod": 1,
        "kernel_launches": 3,
    }
