"""Names: what a dotted expression means through imports, aliases, rebinding and shadowing."""

from __future__ import annotations

import pytest
from semantics_support import kind, module, node, project

RELU = "torch.nn.functional.relu"


def qualified(text: str, code: str, number: int = -1) -> str | None:
    """The qualified name of the last occurrence of an expression, if no other is asked for."""
    found = module(text)
    return found.qualified(node(found, code, number))


# Import forms


@pytest.mark.parametrize(
    ("imports", "used"),
    [
        ("import torch", "torch.nn.functional.relu"),
        ("import os, torch", "torch.nn.functional.relu"),
        ("import torch as t", "t.nn.functional.relu"),
        ("import torch.nn", "torch.nn.functional.relu"),
        ("import torch.nn.functional", "torch.nn.functional.relu"),
        ("import torch.nn as nn", "nn.functional.relu"),
        ("import torch.nn.functional as F", "F.relu"),
        ("from torch import nn", "nn.functional.relu"),
        ("from torch import nn as layers", "layers.functional.relu"),
        ("from torch.nn import functional", "functional.relu"),
        ("from torch.nn import functional as F", "F.relu"),
        ("from torch.nn.functional import relu", "relu"),
        ("from torch.nn.functional import gelu, relu as activate", "activate"),
        ("from torch.nn.functional import (\n    relu,\n)", "relu"),
    ],
)
def test_every_import_form_leads_to_the_qualified_name(imports: str, used: str) -> None:
    assert qualified(f"{imports}\ny = {used}(x)\n", used) == RELU


@pytest.mark.parametrize(
    ("star", "name", "meaning"),
    [
        ("from torch import *", "zeros", "torch.zeros"),
        ("from torch import *", "nn.Linear", "torch.nn.Linear"),
        ("from torch.nn import *", "Linear", "torch.nn.Linear"),
        ("from torch.utils.data import *", "DataLoader", "torch.utils.data.DataLoader"),
    ],
)
def test_star_import_of_a_torch_module_binds_what_that_module_exports(star: str, name: str, meaning: str) -> None:
    assert qualified(f"{star}\ny = {name}(3)\n", name) == meaning


def test_star_import_binds_no_name_that_the_module_does_not_export() -> None:
    assert qualified("from torch.nn import *\ny = zeros(3)\n", "zeros") is None


def test_own_definition_wins_over_an_earlier_star_import() -> None:
    assert qualified("from torch import *\ndef zeros(n): ...\ny = zeros(3)\n", "zeros") is None


def test_star_import_of_another_package_binds_nothing_known() -> None:
    assert qualified("from mylib import *\ny = zeros(3)\n", "zeros") is None


def test_name_from_another_package_is_not_torchs() -> None:
    assert qualified("from jax.numpy import zeros\ny = zeros(3)\n", "zeros") != "torch.zeros"


@pytest.mark.parametrize(
    ("aliases", "used"),
    [
        ("F = torch.nn.functional", "F.relu"),
        ("relu = torch.nn.functional.relu", "relu"),
        ("nn = torch.nn; F = nn.functional", "F.relu"),
        ("first = second = torch.nn.functional.relu", "second"),
        ("relu, gelu = torch.nn.functional.relu, torch.nn.functional.gelu", "relu"),
        ("relu: object = torch.nn.functional.relu", "relu"),
    ],
)
def test_alias_by_assignment_is_followed(aliases: str, used: str) -> None:
    assert qualified(f"import torch\n{aliases}\ny = {used}(x)\n", used) == RELU


# Conditional imports


def test_import_that_may_fail_still_means_the_module() -> None:
    text = """
        try:
            import torch
        except ImportError:
            torch = None
        y = torch.zeros(3)
    """
    assert qualified(text, "torch.zeros") == "torch.zeros"


def test_import_under_type_checking_counts() -> None:
    text = """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            import torch.nn.functional as F
        y = F.relu(x)
    """
    assert qualified(text, "F.relu") == RELU


def test_two_branches_that_import_the_same_agree() -> None:
    text = """
        if fast:
            import torch.nn.functional as F
        else:
            from torch.nn import functional as F
        y = F.relu(x)
    """
    assert qualified(text, "F.relu") == RELU


def test_two_branches_that_import_different_things_leave_the_name_unknown() -> None:
    text = """
        if fast:
            from torch.nn.functional import relu as act
        else:
            from torch.nn.functional import gelu as act
        y = act(x)
    """
    assert qualified(text, "act") is None


def test_import_in_one_branch_only_still_counts_after_it() -> None:
    assert qualified("if True:\n    import torch\ny = torch.zeros(3)\n", "torch.zeros") == "torch.zeros"


# Local imports


def test_import_inside_a_function_counts_inside_it() -> None:
    text = """
        def f(x):
            from torch.nn import functional as F
            return F.relu(x)
    """
    assert qualified(text, "F.relu") == RELU


def test_import_inside_one_function_does_not_count_in_another() -> None:
    text = """
        def f():
            import torch
        def g():
            return torch.zeros(3)
    """
    assert qualified(text, "torch.zeros") is None


def test_import_inside_a_function_counts_in_functions_nested_in_it() -> None:
    text = """
        def f():
            import torch
            def g():
                return torch.zeros(3)
            return g
    """
    assert qualified(text, "torch.zeros") == "torch.zeros"


def test_import_below_a_function_counts_in_its_body() -> None:
    text = """
        def f():
            return torch.zeros(3)
        import torch
    """
    assert qualified(text, "torch.zeros") == "torch.zeros"


def test_import_in_a_class_body_counts_there_and_not_in_its_methods() -> None:
    text = """
        class Net:
            import torch
            start = torch.zeros(3)
            def f(self):
                return torch.ones(3)
    """
    assert qualified(text, "torch.zeros") == "torch.zeros"
    assert qualified(text, "torch.ones") is None


# Rebinding and shadowing


def test_rebinding_counts_from_where_it_stands() -> None:
    text = """
        import torch
        a = torch.zeros(3)
        torch = make_fake()
        b = torch.zeros(3)
    """
    assert qualified(text, "torch.zeros", 0) == "torch.zeros"
    assert qualified(text, "torch.zeros", 1) is None


@pytest.mark.parametrize(
    "function",
    [
        "def f(torch):\n    return torch.zeros(3)",
        "def f(*torch):\n    return torch.zeros(3)",
        "def f(**torch):\n    return torch.zeros(3)",
        "f = lambda torch: torch.zeros(3)",
        "def f(fakes):\n    for torch in fakes:\n        torch.zeros(3)",
        "def f(fakes):\n    return [torch.zeros(3) for torch in fakes]",
        "def f():\n    with fake() as torch:\n        torch.zeros(3)",
        "def f():\n    try:\n        fake()\n    except ValueError as torch:\n        torch.zeros(3)",
        "def f():\n    torch = fake()\n    torch.zeros(3)",
        "def f():\n    if (torch := fake()):\n        torch.zeros(3)",
        "def f():\n    torch, other = fakes()\n    torch.zeros(3)",
        "def f():\n    def torch(): ...\n    torch.zeros(3)",
        "def f():\n    class torch: ...\n    torch.zeros(3)",
        "def f():\n    from fakes import torch\n    torch.zeros(3)",
        "def f(x):\n    match x:\n        case [torch]:\n            torch.zeros(3)",
    ],
)
def test_other_binding_of_the_name_shadows_the_import(function: str) -> None:
    assert qualified(f"import torch\n{function}\n", "torch.zeros") != "torch.zeros"


def test_name_bound_further_down_in_a_function_is_local_in_all_of_it() -> None:
    text = """
        import torch
        def f():
            y = torch.zeros(3)
            torch = None
    """
    assert qualified(text, "torch.zeros") is None


def test_comprehension_variable_does_not_leak() -> None:
    text = """
        import torch
        fakes = [torch for torch in fakes]
        y = torch.zeros(3)
    """
    assert qualified(text, "torch.zeros") == "torch.zeros"


def test_class_attribute_does_not_shadow_in_methods() -> None:
    text = """
        import torch
        class Net:
            torch = None
            def f(self):
                return torch.zeros(3)
    """
    assert qualified(text, "torch.zeros") == "torch.zeros"


def test_attribute_of_another_object_is_not_the_module() -> None:
    text = """
        import torch
        def f(self):
            return self.torch.zeros(3)
    """
    assert qualified(text, "self.torch.zeros") is None


def test_projects_own_module_named_like_a_torch_name_wins() -> None:
    found = project(
        {"torch_utils.py": "def zeros(n): return 0\n", "main.py": "from torch_utils import zeros\ny = zeros(3)\n"}
    )
    assert found["main.py"].qualified(node(found["main.py"], "zeros", -1)) is None


# Indexes


def test_calls_are_found_by_their_last_name_in_source_order() -> None:
    found = module("b.item()\nitem()\na.c.item(); x.tolist()\nf(item)\n")
    assert [call.lineno for call in found.calls_named("item")] == [1, 2, 3]
    assert [call.lineno for call in found.calls_named("tolist", "item")] == [1, 2, 3, 3]
    assert found.calls_named("cpu") == []


def test_functions_and_classes_have_their_place_in_the_file_as_name() -> None:
    text = """
        class Net:
            def forward(self, x):
                def inner(): ...
        async def train(): ...
    """
    found = module(text)
    assert [function.qualname for function in found.functions] == ["Net.forward", "Net.forward.<locals>.inner", "train"]
    assert [cls.qualname for cls in found.classes] == ["Net"]
    assert found.functions[0].owner is found.classes[0]
    assert found.functions[1].owner is None


def test_decorators_and_defaults_belong_to_the_scope_around_their_function() -> None:
    text = """
        import torch
        @torch.no_grad()
        def f(torch=torch.zeros(3)):
            return torch.ones(3)
    """
    assert qualified(text, "torch.no_grad") == "torch.no_grad"
    assert qualified(text, "torch.zeros") == "torch.zeros"
    assert qualified(text, "torch.ones") is None


def test_long_chain_of_operators_is_no_problem() -> None:
    text = "import torch\nx = torch.zeros(3)\ny = " + " + ".join(["x"] * 900) + "\nz = y\n"
    assert kind(module(text), "y") == "tensor"
