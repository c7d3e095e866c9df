"""Regions: step loops, hot code and what guards it, gradients on or off."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest
from semantics_support import is_hot, module, node

if TYPE_CHECKING:
    from torchlint.semantics import Module

PRELUDE = """\
import contextlib
import itertools
import random
import sys
import time
import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from tqdm import tqdm

model = nn.Linear(3, 3).cuda()
optimizer = optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(dataset)
"""


def source(body: str) -> Module:
    return module(PRELUDE + textwrap.dedent(body))


def hot(body: str, code: str = "read()") -> bool:
    """Whether the first `read()` of a script is hot."""
    return is_hot(source(body), code)


def step(*lines: str, loop: str = "for step, batch in enumerate(loader):") -> str:
    """A training loop with some lines after its step."""
    head = ["loss = model(batch).sum()", "loss.backward()", "optimizer.step()"]
    return "\n".join([loop, *(textwrap.indent(text, "    ") for text in (*head, *lines))]) + "\n"


# Step loops


@pytest.mark.parametrize(
    "loop",
    [
        "for x in xs:\n    model(x)\n    read()",
        "while True:\n    model(x)\n    read()",
        "for x in xs:\n    loss(x).backward()\n    read()",
        "for x in xs:\n    optimizer.step()\n    read()",
        "for x in loader:\n    read()",
        "for i, x in enumerate(loader):\n    read()",
        "for x in tqdm(loader):\n    read()",
        "for i, x in enumerate(tqdm(loader)):\n    read()",
        "for i, x in tqdm(enumerate(loader)):\n    read()",
        "for i, x in zip(range(9), loader):\n    read()",
        "for x in itertools.islice(loader, 9):\n    read()",
        "[read() for x in loader]",
        "ys = [(model(x), read()) for x in xs]",
        "ys = {x: read(model(x)) for x in xs}",
        "for x in xs:\n    if x is not None:\n        model(x)\n    read()",
        "for x in xs:\n    with torch.no_grad():\n        y = model(x)\n    read()",
        "for x in xs:\n    try:\n        model(x)\n    finally:\n        pass\n    read()",
        "while not done:\n    action = model(state)\n    state, done = env.step(action)\n    read()",
        "for _ in range(length):\n    token = model(tokens)\n    tokens = torch.cat([tokens, token])\n    read()",
    ],
)
def test_loop_that_runs_a_model_or_iterates_a_loader_is_a_step_loop(loop: str) -> None:
    code = "read(model(x))" if "read(model(x))" in loop else "read()"
    assert hot(loop + "\n", code)


@pytest.mark.parametrize(
    "loop",
    [
        "for x in xs:\n    read()",
        "for parameter in model.parameters():\n    read()",
        "for x in xs:\n    print(len(x))\n    read()",
        "while waiting:\n    read()",
        "for path in paths:\n    net = nn.Linear(3, 3)\n    read()",
    ],
)
def test_other_loops_are_no_step_loops(loop: str) -> None:
    assert not hot(loop + "\n")


def test_iterable_and_else_branch_of_a_step_loop_run_once() -> None:
    assert not hot("for x in read():\n    model(x)\n")
    assert not hot("for x in xs:\n    model(x)\nelse:\n    read()\n")


def test_test_of_a_while_loop_runs_on_every_iteration() -> None:
    assert hot("while read():\n    model(x)\n")


def test_forward_only_under_a_periodic_guard_makes_no_step_loop() -> None:
    assert not hot("for i in range(9):\n    if i % 100 == 0:\n        model(x)\n    read()\n")


def test_function_that_steps_makes_the_loop_that_calls_it_a_step_loop() -> None:
    body = """
        def train_step(x):
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
        for x in xs:
            train_step(x)
            read()
    """
    assert hot(body)


def test_method_that_steps_makes_the_loop_that_calls_it_a_step_loop() -> None:
    body = """
        class Trainer:
            def __init__(self):
                self.model = nn.Linear(3, 3)
                self.opt = optim.SGD(self.model.parameters(), lr=0.1)
            def train_step(self, x):
                self.model(x).sum().backward()
                self.opt.step()
            def fit(self, xs):
                for x in xs:
                    self.train_step(x)
                    read()
    """
    assert hot(body)


def test_step_loop_of_a_node_is_the_innermost() -> None:
    found = source("for epoch in range(9):\n    for x in loader:\n        for y in x:\n            read()\n")
    loop = found.step_loop(node(found, "read()"))
    assert loop is not None
    assert loop.lineno == node(found, "loader", -1).lineno


# Epoch loops


def test_code_after_the_step_loop_within_the_epoch_is_cold() -> None:
    body = "for epoch in range(9):\n" + textwrap.indent(step(), "    ") + "    read()\n"
    assert not hot(body)


def test_code_before_the_step_loop_within_the_epoch_is_cold() -> None:
    body = "for epoch in range(9):\n    read()\n" + textwrap.indent(step(), "    ")
    assert not hot(body)


def test_lone_forward_in_the_epoch_loop_makes_it_no_step_loop() -> None:
    body = "for epoch in range(9):\n" + textwrap.indent(step(), "    ") + "    model(sample)\n    read()\n"
    assert not hot(body)


def test_optimizer_step_after_the_micro_batches_makes_the_outer_loop_a_step_loop() -> None:
    body = """
        for batch in range(9):
            for micro in range(4):
                model(x).sum().backward()
            optimizer.step()
            read()
    """
    assert hot(body)


def test_function_that_holds_a_step_loop_makes_its_caller_an_epoch_loop() -> None:
    body = """
        def train_epoch():
            for x in loader:
                model(x).sum().backward()
                optimizer.step()
        for epoch in range(9):
            train_epoch()
            read()
    """
    assert not hot(body)


def test_loop_after_the_step_loop_that_makes_a_few_pictures_stays_cold() -> None:
    body = (
        "for epoch in range(9):\n"
        + textwrap.indent(step(), "    ")
        + "    for i in range(4):\n        model(z)\n        read()\n"
    )
    assert not hot(body)


# Hot code


def test_code_in_a_further_loop_inside_a_step_loop_is_hot() -> None:
    assert hot(step("for name in names:\n    read()"))


def test_code_outside_any_loop_is_cold() -> None:
    assert not hot("model(x)\nread()\n")


def test_function_called_from_a_step_loop_is_hot() -> None:
    assert hot("def log():\n    read()\n" + step("log()"))


def test_function_called_from_a_hot_function_is_hot() -> None:
    assert hot("def inner():\n    read()\ndef log():\n    inner()\n" + step("log()"))


def test_function_called_under_a_guard_is_cold() -> None:
    assert not hot("def log():\n    read()\n" + step("if step % 10 == 0:\n    log()"))


def test_function_called_once_hot_and_once_cold_is_hot() -> None:
    assert hot("def log():\n    read()\nlog()\n" + step("log()"))


def test_function_called_only_after_the_step_loop_is_cold() -> None:
    body = "def log():\n    read()\nfor epoch in range(9):\n" + textwrap.indent(step(), "    ") + "    log()\n"
    assert not hot(body)


def test_forward_of_a_module_is_hot() -> None:
    assert hot("class Net(nn.Module):\n    def forward(self, x):\n        read()\n")


def test_method_called_from_forward_is_hot() -> None:
    body = """
        class Net(nn.Module):
            def helper(self):
                read()
            def forward(self, x):
                self.helper()
    """
    assert hot(body)


def test_init_of_a_module_and_forward_of_another_class_are_cold() -> None:
    assert not hot("class Net(nn.Module):\n    def __init__(self):\n        read()\n")
    assert not hot("class Net:\n    def forward(self, x):\n        read()\n")


def test_nested_function_called_from_a_step_loop_is_hot() -> None:
    body = """
        def train():
            def log():
                read()
            for x in loader:
                log()
    """
    assert hot(body)


def test_method_of_unique_name_on_an_unknown_receiver_is_hot() -> None:
    body = """
        class Meter:
            def record_scores(self):
                read()
        def train(meter):
            for x in loader:
                meter.record_scores()
    """
    assert hot(body)


# Guards


@pytest.mark.parametrize(
    "guard",
    [
        "step % 10 == 0",
        "not step % 10",
        "(step + 1) % args.log_interval == 0",
        "10 == step % 20",
        "step % 10 == 0 and rank == 0",
        "rank == 0 and step % 10 == 0",
        "step % 10 == 0 or step == last",
        "step == last",
        "step == len(loader) - 1",
        "last == step",
        "step in checkpoints",
        "step < 3",
        "debug",
        "args.debug",
        "args.verbose",
        "verbose > 1",
        "logger.isEnabledFor(10)",
        "step < warmup_steps",
        "in_warmup and step < args.warmup",
        "time.time() - last_print > 10",
        "should_log",
        "due(step)",
    ],
)
def test_code_under_a_periodic_guard_is_cold(guard: str) -> None:
    body = step("should_log = step % 10 == 0", f"if {guard}:\n    read()")
    assert not hot("def due(step):\n    return step % 10 == 0\n" + body)


@pytest.mark.parametrize(
    "condition",
    [
        "step > learning_starts",
        "random.random() < eps",
        "batch is not None",
        "training",
        "args.fp16",
        "rank == 0",
        "use_amp and scaler",
        "len(batch) > 2",
        "step % 10 == 0 or training",
        "step % 10",
        "not step % 10 == 0",
        "step % 10 != 0",
        "step >= warmup_steps",
        "hasattr(model, 'x')",
    ],
)
def test_other_conditions_guard_nothing(condition: str) -> None:
    assert hot(step(f"if {condition}:\n    read()"))


def test_else_branch_of_a_periodic_guard_is_hot() -> None:
    assert hot(step("if step % 10 == 0:\n    pass\nelse:\n    read()"))


def test_else_branch_of_the_opposite_test_is_cold() -> None:
    assert not hot(step("if step % 10 != 0:\n    pass\nelse:\n    read()"))


def test_test_of_a_guard_itself_is_hot() -> None:
    assert hot(step("if step % 10 == 0 or read():\n    pass"))


def test_operand_behind_a_periodic_test_is_cold() -> None:
    assert not hot(step("if step % 10 == 0 and read():\n    pass"))


def test_conditional_expression_guards_its_branch() -> None:
    assert not hot(step("x = read() if step % 10 == 0 else None"))
    assert hot(step("x = None if step % 10 == 0 else read()"))


def test_guard_around_the_step_loop_does_not_count() -> None:
    body = "for epoch in range(9):\n    if epoch % 10 == 0:\n" + textwrap.indent(step("read()"), "        ")
    assert hot(body)


def test_guard_that_counts_epochs_does_not_count_inside_the_step_loop() -> None:
    body = "for epoch in range(9):\n" + textwrap.indent(step("if epoch % 10 == 0:\n    read()"), "    ")
    assert hot(body)


def test_guard_between_step_loop_and_inner_loop_counts() -> None:
    assert not hot(step("if step % 10 == 0:\n    for name in names:\n        read()"))


def test_guard_inside_a_called_function_counts() -> None:
    assert not hot("def log(step):\n    if step % 10 == 0:\n        read()\n" + step("log(step)"))


def test_guarded_block_that_trains_is_hot() -> None:
    assert hot(step("if step % 4 == 0:\n    optimizer.step()\n    read()"))
    assert hot(step("if step % n_critic == 0:\n    model(z).sum().backward()\n    read()"))


def test_guarded_block_that_calls_a_function_that_trains_is_hot() -> None:
    body = "def train_generator():\n    model(z).sum().backward()\n    optimizer.step()\n"
    assert hot(body + step("if step % n_critic == 0:\n    train_generator()\n    read()"))


def test_counter_that_is_kept_by_hand_guards_too() -> None:
    body = "step = 0\n" + step("step += 1", "if step == 100:\n    read()", loop="for batch in loader:")
    assert not hot(body)


# Early exits


def test_early_continue_under_a_modulo_test_guards_what_follows() -> None:
    assert not hot(step("if step % 10 != 0:\n    continue", "read()"))
    assert not hot(step("if step % 10:\n    continue", "read()"))


def test_early_continue_on_the_interval_itself_guards_nothing() -> None:
    assert hot(step("if step % 10 == 0:\n    continue", "read()"))


def test_other_continue_guards_nothing() -> None:
    assert hot(step("if batch is None:\n    continue", "read()"))
    assert hot(step("if rank != 0:\n    continue", "read()"))


def test_what_stands_before_an_early_continue_is_hot() -> None:
    assert hot(step("read()", "if step % 10 != 0:\n    continue"))


def test_early_return_of_a_called_function_guards_what_follows() -> None:
    assert not hot("def log(step):\n    if step % 10 != 0:\n        return\n    read()\n" + step("log(step)"))


def test_except_handler_is_cold() -> None:
    assert not hot(step("try:\n    pass\nexcept RuntimeError:\n    read()"))


def test_try_else_and_finally_are_hot() -> None:
    for part in ("try:\n    read()\nexcept RuntimeError:\n    pass", "try:\n    pass\nfinally:\n    read()"):
        assert hot(step(part))
    assert hot(step("try:\n    pass\nexcept RuntimeError:\n    pass\nelse:\n    read()"))


@pytest.mark.parametrize("end", ["raise ValueError", "break", "exit()", "sys.exit(1)"])
def test_branch_that_leaves_the_step_loop_is_cold(end: str) -> None:
    assert not hot(step(f"if bad:\n    read()\n    {end}"))


def test_test_of_a_branch_that_leaves_is_hot() -> None:
    assert hot(step("if read():\n    break"))


def test_branch_that_returns_from_the_function_of_the_step_loop_is_cold() -> None:
    body = "def train():\n" + textwrap.indent(step("if bad:\n    read()\n    return None"), "    ")
    assert not hot(body)


def test_branch_that_returns_from_a_called_function_is_hot() -> None:
    assert hot("def log():\n    if bad:\n        read()\n        return\n    pass\n" + step("log()"))


def test_break_of_a_loop_inside_the_step_loop_leaves_only_that_one() -> None:
    assert hot(step("for name in names:\n    if name:\n        read()\n        break"))


# Gradients


def grad_disabled(body: str, code: str = "model(x)") -> bool:
    found = source(body)
    return found.grad_disabled(node(found, code))


@pytest.mark.parametrize(
    "context",
    [
        "torch.no_grad()",
        "torch.inference_mode()",
        "torch.inference_mode(True)",
        "torch.set_grad_enabled(False)",
        "torch.autograd.no_grad()",
        "torch.cuda.amp.autocast(), torch.no_grad()",
    ],
)
def test_context_that_turns_gradients_off(context: str) -> None:
    assert grad_disabled(f"with {context}:\n    model(x)\n")


@pytest.mark.parametrize(
    "context",
    ["torch.enable_grad()", "torch.set_grad_enabled(True)", "torch.cuda.amp.autocast()", "torch.inference_mode(False)"],
)
def test_context_that_leaves_gradients_on(context: str) -> None:
    assert not grad_disabled(f"with {context}:\n    model(x)\n")


def test_innermost_context_decides() -> None:
    assert not grad_disabled("with torch.no_grad():\n    with torch.enable_grad():\n        model(x)\n")


def test_code_after_a_context_has_gradients_again() -> None:
    assert not grad_disabled("with torch.no_grad():\n    pass\nmodel(x)\n")


@pytest.mark.parametrize(
    "decorator", ["torch.no_grad()", "torch.no_grad", "torch.inference_mode()", "torch.inference_mode"]
)
def test_decorator_turns_gradients_off(decorator: str) -> None:
    assert grad_disabled(f"@{decorator}\ndef f(x):\n    model(x)\n")


def test_decorator_from_a_bare_import_turns_gradients_off() -> None:
    assert grad_disabled("from torch import no_grad\n@no_grad()\ndef f(x):\n    model(x)\n")


def test_gradients_switched_off_at_module_level_are_off_in_functions() -> None:
    assert grad_disabled("torch.set_grad_enabled(False)\ndef f(x):\n    model(x)\n")


def test_gradients_switched_off_and_on_again() -> None:
    body = "torch.set_grad_enabled(False)\ny = model(x)\ntorch.set_grad_enabled(True)\nz = model(xs)\n"
    assert grad_disabled(body, "model(x)")
    assert not grad_disabled(body, "model(xs)")


def test_function_whose_call_sites_all_run_without_gradients() -> None:
    assert grad_disabled("def f(x):\n    model(x)\nwith torch.no_grad():\n    f(1)\n    f(2)\n")


def test_function_with_one_call_site_that_has_gradients() -> None:
    assert not grad_disabled("def f(x):\n    model(x)\nwith torch.no_grad():\n    f(1)\nf(2)\n")


def test_callers_of_callers_count() -> None:
    body = "def f(x):\n    model(x)\ndef g(x):\n    f(x)\n@torch.no_grad()\ndef h(x):\n    g(x)\n"
    assert grad_disabled(body)


def test_function_that_nothing_calls_has_gradients() -> None:
    assert not grad_disabled("def f(x):\n    model(x)\n")


def test_function_handed_over_as_a_value_may_be_called_with_gradients() -> None:
    assert not grad_disabled("def f(x):\n    model(x)\nwith torch.no_grad():\n    f(1)\nregister(f)\n")


def test_conditional_context_may_turn_gradients_off() -> None:
    assert grad_disabled("with torch.no_grad() if frozen else contextlib.nullcontext():\n    model(x)\n")


# Evaluation regions: the forwards that run with gradients on


def exposed(body: str, function: str | None = None) -> list[int]:
    """Lines, counted in the body, of the calls that run a forward with gradients on."""
    found = source(body)
    owner = next((f for f in found.functions if f.qualname == function), None)
    offset = PRELUDE.count("\n")
    return [call.lineno - offset for call in found.exposed_forwards(owner)]


def test_forward_with_gradients_on_is_exposed() -> None:
    assert exposed("def test(x):\n    y = model(x)\n    with torch.no_grad():\n        model(y)\n", "test") == [2]


def test_call_of_a_function_that_runs_a_forward_is_exposed() -> None:
    assert exposed("def run(x):\n    return model(x)\ndef test(x):\n    run(x)\n", "test") == [4]


def test_call_of_a_function_that_turns_gradients_off_itself_is_not_exposed() -> None:
    assert exposed("@torch.no_grad()\ndef run(x):\n    return model(x)\ndef test(x):\n    run(x)\n", "test") == []


def test_call_of_a_module_whose_forward_turns_gradients_off_is_not_exposed() -> None:
    body = """class Net(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return model(x)
net = Net()
def test(x):
    net(x)
"""
    assert exposed(body, "test") == []


def test_loss_backward_differentiates() -> None:
    found = source("def f(x):\n    model(x).backward()\ndef g(x):\n    f(x)\ndef h(x):\n    model(x)\n")
    first, second, third = (function.node for function in found.functions)
    assert found.differentiates(first)
    assert found.differentiates(second)
    assert not found.differentiates(third)


# Device projects


@pytest.mark.parametrize(
    "line",
    [
        "x.cuda()",
        "d = 'cuda'",
        "x.to(device)",
        "torch.cuda.FloatTensor(3)",
        "torch.zeros(3, device=device)",
        "from accelerate import Accelerator",
        "import lightning as L",
        "from torch.nn.parallel import DistributedDataParallel",
    ],
)
def test_file_that_names_a_gpu_device_is_a_device_project(line: str) -> None:
    assert module(f"import torch\n{line}\n").device_project


def test_file_that_names_no_device_is_none() -> None:
    assert not module("import torch\nmodel = torch.nn.Linear(3, 3)\nmodel(x).sum().backward()\n").device_project
