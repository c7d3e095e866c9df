"""What the edit operations write, and what they refuse to touch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlint.comments import find_spans
from torchlint.fixing import edits
from torchlint.fixing.edits import Edit, Unfixable
from torchlint.fixing.splice import can_build
from torchlint.semantics import Linked, Module, ProjectLayout
from torchlint.semantics.growth import Growth, growth_by
from torchlint.source import SourceFile

Operation = Callable[[SourceFile, ast.Module], list[Edit]]


def edited(text: str, operation: Operation) -> str | None:
    """The text after an operation, None where it cannot be done; `can_build` has to say so without doing it."""
    source = SourceFile.from_text(Path("a.py"), text)
    possible = can_build(lambda: operation(source, source.parse()))
    try:
        made = operation(source, source.parse())
    except Unfixable:
        assert not possible
        return None
    assert possible or not made
    return source.edited(made).text


def call(tree: ast.AST, name: str = "f") -> ast.Call:
    """The first call whose function's last name is `name`."""
    return next(n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func).endswith(name))


def statement(tree: ast.AST, kind: type[ast.stmt]) -> Any:
    return next(node for node in ast.walk(tree) if isinstance(node, kind))


def test_libcst_is_imported_for_an_edit_only() -> None:
    program = (
        "import sys, ast, torchlint.fixing.edits as e, torchlint.fixing.apply\nfrom pathlib import Path\n"
        "from torchlint.source import SourceFile\nassert 'libcst' not in sys.modules\n"
        "s = SourceFile.from_text(Path('a.py'), 'f(1)')\ne.set_argument(s, s.parse().body[0].value, 'a', '1')\n"
        "assert 'libcst' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# Arguments


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(bias=False)"),
        ("f(a)", "f(a, bias=False)"),
        ("f(a,)", "f(a, bias=False,)"),
        ("f( a , b )", "f( a , b, bias=False )"),
        ("f(a = 1)", "f(a = 1, bias = False)"),
        ("f(bias=True)", "f(bias=False)"),
        ("f(a, bias = (True), **k)", "f(a, bias = False, **k)"),
        ("f(\n    a,\n    b\n)", "f(\n    a,\n    b,\n    bias=False\n)"),
        ("f(\n\ta,\n\tb,\n)", "f(\n\ta,\n\tb,\n\tbias=False,\n)"),
        ("f(\r\n    a,\r\n    b,\r\n)", "f(\r\n    a,\r\n    b,\r\n    bias=False,\r\n)"),
        ("f(\n    a,  # one\n    b  # two\n)", "f(\n    a,  # one\n    b,  # two\n    bias=False\n)"),
        ("f(\n    a,\n    b,\n    # end\n)", "f(\n    a,\n    b,\n    # end\n    bias=False,\n)"),
        ("f(a,\n  b)", "f(a,\n  b,\n  bias=False)"),
        ("f(\n    a, b\n)", "f(\n    a, b, bias=False\n)"),
        ("f(a, \\\n  b)", "f(a, \\\n  b, bias=False)"),
        ("f(x for x in y)", "f((x for x in y), bias=False)"),
        ("f(y := 3)", "f(y := 3, bias=False)"),
        ("f(lambda: 3)", "f(lambda: 3, bias=False)"),
        ("é = 'ü', f(g(f'{1:>{2}}'))", "é = 'ü', f(g(f'{1:>{2}}'), bias=False)"),
        ("x = (y\n  .f(1)\n  .g())", "x = (y\n  .f(1, bias=False)\n  .g())"),
        ("f(*a)", None),
        ("f(**k)", None),
        ("f(\n    # nothing\n)", None),
        ("f(bias=(  # why\n True))", None),
    ],
)
def test_set_argument(before: str, after: str | None) -> None:
    assert edited(before, lambda source, tree: edits.set_argument(source, call(tree), "bias", "False")) == after


@pytest.mark.parametrize(
    ("before", "argument", "after"),
    [
        ("f(b=1)", "b", "f()"),
        ("f( False )", 0, "f()"),
        ("f(\n    b=1,\n)", "b", "f()"),
        ("f(a, False)", 1, "f(a)"),
        ("f(a, False)", 0, None),
        ("f(False, x=1)", 0, "f(x=1)"),
        ("f(a, b=1, c=2)", "b", "f(a, c=2)"),
        ("f(a, b=1,)", "b", "f(a,)"),
        ("f(a,\n  b=1)", "b", "f(a)"),
        ("f(b=1,\n  c=2)", "b", "f(c=2)"),
        ("f(\n    a,  # x\n    b=1,\n)", "b", "f(\n    a,  # x\n)"),
        ("f(\n    a,\n    b=1\n)", "b", "f(\n    a\n)"),
        ("f(b=1, *a)", "b", "f(*a)"),
        ("f(*a)", 0, None),
        ("f(a)", "b", None),
        ("f(\n    a,\n    b=1,  # own\n)", "b", None),
        ("f(\n    a,\n    # own\n    b=1,\n)", "b", None),
        ("f(\n    # own\n    b=1,\n)", "b", None),
    ],
)
def test_drop_argument(before: str, argument: str | int, after: str | None) -> None:
    assert edited(before, lambda source, tree: edits.drop_argument(source, call(tree), argument)) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("zeros(n).to(device)", "zeros(n, device=device)"),
        ("zeros(n).to(device=d, non_blocking=True)", "zeros(n, device=d)"),
        ("zeros(n).to('cuda')", "zeros(n, device='cuda')"),
        ("zeros(n).cuda()", 'zeros(n, device="cuda")'),
        ("zeros(n).cuda(non_blocking=True)", 'zeros(n, device="cuda")'),
        ("a = 'x', 'y'; zeros(n).cuda(1)", "a = 'x', 'y'; zeros(n, device='cuda:1')"),
        ("zeros(n).cuda(None)", 'zeros(n, device="cuda")'),
        ("zeros(n).cuda(x.device)", "zeros(n, device=x.device)"),
        ("zeros(n).cuda(args.gpu)", None),
        ("zeros(\n    n,\n).to(\n    d\n)", "zeros(\n    n,\n    device=d,\n)"),
        (
            "x = (\n    zeros(n)\n    .to(d)  # move\n    .view(-1)\n)",
            "x = (\n    zeros(n, device=d)  # move\n    .view(-1)\n)",
        ),
        ("Variable(zeros(n)).cuda()", 'Variable(zeros(n, device="cuda"))'),
        ("Variable(zeros(n).cuda())", 'Variable(zeros(n, device="cuda"))'),
        ("(zeros(n)).to(d)[0]", "(zeros(n, device=d))[0]"),
        ("zeros(n).to(d if a else b)", "zeros(n, device=d if a else b)"),
        ("zeros(n).to(d, torch.half)", None),
        ("zeros(n).to(d, copy=True)", None),
        ("zeros(n).to(*d)", None),
        ("zeros(n).to()", None),
        ("zeros(*n).to(d)", None),
        ("zeros(n, device=e).to(d)", None),
        ("zeros(n).to(  # why\n d)", None),
    ],
)
def test_move_argument_into(before: str, after: str | None) -> None:
    def operation(source: SourceFile, tree: ast.Module) -> list[Edit]:
        move = next(
            n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func).endswith(("to", "cuda"))
        )
        return edits.move_argument_into(source, move, call(tree, "zeros"))

    assert edited(before, operation) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = zeros(n)\nx = x.to(d)\ny\n", "x = zeros(n, device=d)\ny\n"),
        ("if a:\n\tx = zeros(n)\n\tz()\n\tx = x.cuda()", 'if a:\n\tx = zeros(n, device="cuda")\n\tz()'),
        ("x = zeros(n)\nd = g()\nx = x.to(d)\n", None),
        ("x = zeros(n)\ng()\nx = x.to(a.d)\n", None),
        ("x = zeros(n); x = x.to(d)\n", None),
        ("x = zeros(n)\nx = x.to(d)  # why\n", "x = zeros(n, device=d)  # why\n"),
        ("x = zeros(n)\nx = x.to(d)  # why", "x = zeros(n, device=d)  # why"),
        ("x = zeros(\n  n\n)\ny\nx = x.to(d)\t# why\r\nz", "x = zeros(\n  n,\n  device=d\n)  # why\ny\nz"),
        (
            "if a:\n  x = zeros(n)  # how\n  y\n  x = x.to(d)  # why \n",
            "if a:\n  x = zeros(n, device=d)  # how\n  y\n  # why \n",
        ),
        ("x = zeros(n)\nx = x.to(  # why\n  d)\n", None),
        ("x = zeros(n); y\nx = x.to(d)  # why\n", None),
        ("x = zeros(n)\nx = x.to(d); y  # why\n", None),
        ("x = zeros(n)  # how\ny; x = x.to(d)  # why\n", None),
        ("x = zeros(n)\nif a:\n    x = x.to(d)\n", None),
    ],
)
def test_move_into_statement(before: str, after: str | None) -> None:
    def operation(source: SourceFile, tree: ast.Module) -> list[Edit]:
        mover = next(
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.Assign) and ast.unparse(n.value).startswith(("x.to", "x.cuda"))
        )
        assert isinstance(mover.value, ast.Call)
        return edits.move_into_statement(source, mover.value, call(tree, "zeros"), mover)

    assert edited(before, operation) == after


# Expressions


@pytest.mark.parametrize(
    ("before", "new", "after"),
    [
        ("x = f(1) * 2", "a + b", "x = (a + b) * 2"),
        ("x = f(1) * 2", "a.b[c]", "x = a.b[c] * 2"),
        ("g(f(1))", "a if b else c", "g(a if b else c)"),
        ("f(1).y", "3", "(3).y"),
        ("f(1)[0]", "lambda: 3", "(lambda: 3)[0]"),
        ("not f(1)", "a and b", "not (a and b)"),
        ("g(f(1), 2)", "a, b", "g((a, b), 2)"),
        ("x = f(\n 1)", "g(2)", "x = g(2)"),
        ("x = f(\n  # why\n 1)", "g(2)", None),
        ("f(1)", "a b", None),
    ],
)
def test_replace_expression(before: str, new: str, after: str | None) -> None:
    assert edited(before, lambda source, tree: edits.replace_expression(source, call(tree), new)) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(x).to(d)", "f(x)"),
        ("x = (a + b).to(d).y", "x = (a + b).y"),
        ("x = (\n    a\n    # one\n    .to(d)\n)", None),
        ("x = (\n    a\n    .to(d)  # one\n    .z\n)", "x = (\n    a  # one\n    .z\n)"),
        ("x = await a.to(d)", "x = await a"),
        ("to(d)", None),
    ],
)
def test_drop_method_call(before: str, after: str | None) -> None:
    assert edited(before, lambda source, tree: edits.drop_method_call(source, call(tree, "to"))) == after


ARGUMENTS = st.lists(
    st.sampled_from(["a", "b=1", "c = 'x'", "lambda: 0", "f(1)", "(y, z)", "f'{g(1)}'", "e=[\n  1,  # one\n 2]"]),
    max_size=4,
    unique=True,
)
SEPARATORS = st.sampled_from([", ", ",", ",\n    ", ",  # note\n    ", " ,", ", \\\n  ", ",\n\n    # own line\n    "])
CLOSINGS = st.sampled_from(["", " ", "\n", ",", ",\n", "  # last\n", ",  # last\n", ",\n    # last\n"])


@given(ARGUMENTS, SEPARATORS, CLOSINGS, st.sampled_from(["\n", "\r\n"]), st.data())
def test_arguments_of_any_layout(
    arguments: list[str], separator: str, closing: str, newline: str, data: st.DataObject
) -> None:
    arguments.sort(key=lambda argument: argument[1:3].strip().startswith("="))
    text = f"é = g({separator.join(arguments)}{closing if arguments else ''})\nrest  # here\n".replace("\n", newline)
    names = [argument[0] for argument in arguments if argument[1:3].strip().startswith("=")]
    source = SourceFile.from_text(Path("a.py"), text)
    target = call(source.parse(), "g")
    name = data.draw(st.sampled_from(["", *names]))
    if name:
        operation: Callable[[], list[Edit]] = lambda: edits.drop_argument(source, target, name)  # noqa: E731
        wanted = [keyword.arg for keyword in target.keywords if keyword.arg != name]
    else:
        operation = lambda: edits.set_argument(source, target, "bias", "False")  # noqa: E731
        wanted = [*(keyword.arg for keyword in target.keywords), "bias"]
    try:
        after = source.edited(operation())
    except Unfixable:
        assert "#" in text.split("rest")[0]
        assert not can_build(operation)
        return
    assert can_build(operation)
    changed = call(after.parse(), "g")
    assert [keyword.arg for keyword in changed.keywords] == wanted
    assert [ast.dump(argument) for argument in changed.args] == [ast.dump(argument) for argument in target.args]
    assert comments(after) == comments(source)
    assert after.text.replace("\r\n", "").count("\n") == text.replace("\r\n", "").count("\n") or newline == "\n"


def comments(source: SourceFile) -> list[str]:
    return sorted(source.text[start:end] for start, end in find_spans(source.text).comments)


def test_an_edit_is_as_small_as_can_be() -> None:
    source = SourceFile.from_text(Path("a.py"), "f(a, b)")
    assert edits.set_argument(source, call(source.parse()), "c", "1") == [Edit(6, 6, ", c=1")]


def test_whether_an_edit_can_be_built_is_found_out_without_libcst() -> None:
    program = (
        "import sys, ast, torchlint.fixing.edits as e\nfrom pathlib import Path\n"
        "from torchlint.fixing.splice import can_build\nfrom torchlint.source import SourceFile\n"
        "s = SourceFile.from_text(Path('a.py'), 'f(1)')\ncall = s.parse().body[0].value\n"
        "assert can_build(lambda: e.set_argument(s, call, 'a', '1')) and 'libcst' not in sys.modules\n"
        "assert not can_build(lambda: e.drop_argument(s, call, 'a'))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# Lines


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def g(): pass", "@no_grad()\ndef g(): pass"),
        (
            "class A:\n\t@p\n\t# why\n\tdef g(self): pass\n",
            "class A:\n\t@p\n\t# why\n\t@no_grad()\n\tdef g(self): pass\n",
        ),
        ("x\r\ndef g():\r\n  pass\r\n", "x\r\n@no_grad()\r\ndef g():\r\n  pass\r\n"),
    ],
)
def test_decorate(before: str, after: str | None) -> None:
    def operation(source: SourceFile, tree: ast.Module) -> list[Edit]:
        return edits.decorate(source, statement(tree, ast.FunctionDef), "no_grad()")

    assert edited(before, operation) == after


@pytest.mark.parametrize(
    ("before", "after", "in_front"),
    [
        ("for a in b:\n    c()", "for a in b:\n    c()\ny = 1", "y = 1\nfor a in b:\n    c()"),
        (
            "if 1:\n\tfor a in b:\r\n\t\tc()  # z\r\n\t\t# deep\r\n\t# shallow\n",
            "if 1:\n\tfor a in b:\r\n\t\tc()  # z\r\n\t\t# deep\r\n\ty = 1\r\n\t# shallow\n",
            "if 1:\n\ty = 1\r\n\tfor a in b:\r\n\t\tc()  # z\r\n\t\t# deep\r\n\t# shallow\n",
        ),
        ("for a in b: c(); d()\n", "for a in b: c(); d()\ny = 1\n", "y = 1\nfor a in b: c(); d()\n"),
        (
            "if x:\n  for a in b:\n    '''\n'''\n  else:\n    c\n",
            "if x:\n  for a in b:\n    '''\n'''\n  else:\n    c\n  y = 1\n",
            "if x:\n  y = 1\n  for a in b:\n    '''\n'''\n  else:\n    c\n",
        ),
    ],
)
def test_insert_around_a_loop(before: str, after: str, in_front: str) -> None:
    assert edited(before, lambda source, tree: edits.insert_after(source, statement(tree, ast.For), "y = 1")) == after
    assert (
        edited(before, lambda source, tree: edits.insert_before(source, statement(tree, ast.For), "y = 1")) == in_front
    )


@pytest.mark.parametrize("before", ["a = 1; b\n", "if x: a = 1\n", "if x: \\\n  a = 1\n"])
def test_statements_that_share_a_line_get_no_line_behind(before: str) -> None:
    assert edited(before, lambda source, tree: edits.insert_after(source, statement(tree, ast.Assign), "y")) is None


@pytest.mark.parametrize(
    ("before", "count", "after"),
    [
        ("a\nb\n", 1, "with c():\n    a\nb\n"),
        ("a  # 1\n\n# 2\nb  # 3", 2, "with c():\n    a  # 1\n\n    # 2\n    b  # 3"),
        (
            "x = '''\n  s\n'''\nf(\n    a,\n    b)\n",
            2,
            "with c():\n    x = '''\n  s\n'''\n    f(\n        a,\n        b)\n",
        ),
        ("a\r\nif b:\r\n  d\r\n", 2, "with c():\r\n  a\r\n  if b:\r\n    d\r\n"),
        ("@d\ndef f():\n\tpass\nx\n", 1, "with c():\n\t@d\n\tdef f():\n\t\tpass\nx\n"),
        (
            "for i in j:\n    a\n    # own\n# not\nb\n",
            1,
            "with c():\n    for i in j:\n        a\n        # own\n# not\nb\n",
        ),
        ("a; b\n", 2, "with c():\n    a; b\n"),
        ("a; b\n", 1, None),
    ],
)
def test_wrap_in_with(before: str, count: int, after: str | None) -> None:
    result = edited(before, lambda source, tree: edits.wrap_in_with(source, tree.body[:count], "c()"))
    if result is not None and "\t" in before:
        result = result.replace("    ", "\t")
    assert result == after


def test_wrap_in_with_inside_a_block() -> None:
    text = "if x:\n\ta\n\tfor i in j:\n\t\tb\n\tc\n"
    result = edited(text, lambda source, tree: edits.wrap_in_with(source, statement(tree, ast.If).body[:2], "c()"))
    assert result == "if x:\n\twith c():\n\t\ta\n\t\tfor i in j:\n\t\t\tb\n\tc\n"


def test_a_branch_gets_no_line_before_or_behind() -> None:
    text = "if a:\n    b\nelif c:\n    d\n"
    for operation in (edits.insert_before, edits.insert_after):
        assert edited(text, lambda source, tree: operation(source, statement(tree, ast.If).orelse[0], "y")) is None  # noqa: B023


# A list, then one cat


def growth_in(text: str) -> tuple[SourceFile, Growth]:
    source = SourceFile.from_text(Path("a.py"), text)
    module = Module(source, source.parse(), ProjectLayout(Path("nowhere"), ["a.py"]), "a.py")
    module.attach(Linked())
    calls = module.calls_named("cat", "stack", "hstack", "vstack", "dstack")
    return source, next(growth for growth in (growth_by(module, c) for c in calls) if growth is not None)


def listed(loop: str, start: str = "out = torch.empty(0)", tail: str = "return out") -> str | None:
    """The function with this start and loop after the repair; None where there is none."""
    body = f"{start}\n{loop}\n{tail}".replace("\n", "\n    ")
    source, growth = growth_in(f"import torch\n\ndef f(data):\n    {body}\n")
    try:
        return source.edited(edits.list_then_cat(source, growth)).text
    except Unfixable:
        return None


LOOPS = [
    ("out = torch.empty(0)", "for y in data:\n    out = torch.cat((out, y))"),
    ("out = torch.empty(0)", "for y in data:\n    out = torch.cat([y, out], dim=0)"),
    ("out = torch.empty(0)", "for y in data:\n    out = torch.cat((out, y, y), dim=-1)"),
    ("out = torch.empty(0)", "for y in data:\n    if len(y) > 2:\n        continue\n    out = torch.cat((out, y))"),
    ("out = torch.empty(0)", "for y in data:\n    if len(y) > 2:\n        break\n    out = torch.cat((out, y))"),
    ("out = torch.empty(0)", "for y in data:\n    out = torch.cat((out, y))\nelse:\n    data = ()"),
    ("out = torch.empty(0)", "for y in data:\n    for _ in y:\n        pass\n    out = torch.cat((out, y), 1)"),
    ("out = torch.ones(1)", "while data:\n    y, *data = data\n    out = torch.cat((y, out), 1)"),
    (
        "out = None",
        "for y in data:\n    if out is None:\n        out = y\n    else:\n        out = torch.cat((out, y))",
    ),
    (
        "out = None",
        "for y in data:\n    if out is not None:\n        out = torch.cat((y, out))\n    else:\n        out = y",
    ),
    ("out = None", "for y in data:\n    out = y if out is None else torch.cat((out, y), 0)"),
    (
        "out = None",
        "for i, y in enumerate(data):\n    if i == 0:\n        out = y\n    else:\n        out = torch.cat((out, y))",
    ),
    ("out = []", "for y in data:\n    out = torch.cat((out, y)) if len(out) > 0 else y"),
    ("out = []", "for y in data:\n    out = torch.cat((out, y)) if out != [] else y"),
]


class FakeTorch:
    """As much of torch as the loops above need: a tensor is a tuple, of one dimension."""

    @staticmethod
    def empty(size: int) -> tuple[int, ...]:
        return ()

    @staticmethod
    def ones(size: int) -> tuple[int, ...]:
        return (1,) * size

    @staticmethod
    def cat(pieces: Any, dim: int = 0) -> tuple[int, ...]:
        assert pieces
        assert all(isinstance(piece, tuple) for piece in pieces)
        assert dim != 1 or len(pieces) > 1, "one piece of one dimension has no dimension 1"
        return tuple(item for piece in pieces for item in piece)


@pytest.mark.parametrize(("start", "loop"), LOOPS)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple), max_size=4))
def test_a_list_gives_what_repeated_cat_gave(start: str, loop: str, data: list[tuple[int, ...]]) -> None:
    body = f"{start}\n{loop}\nreturn out".replace("\n", "\n    ")
    after = listed(loop, start)
    assert after is not None
    assert after.count("torch.cat(") == 1
    results = []
    for text in (f"def f(data):\n    {body}\n", after.replace("import torch\n", "")):
        names: dict[str, Any] = {"torch": FakeTorch}
        exec(text, names)
        results.append(names["f"](data))
    assert results[0] == results[1]


def test_list_then_cat_reads_well() -> None:
    assert listed("for y in data:\n    out = torch.cat((out, g(y)), dim=0)  # keep") == (
        "import torch\n\ndef f(data):\n    out = torch.empty(0)\n    out_pieces = [out]\n    for y in data:\n"
        "        out_pieces.append(g(y))  # keep\n    out = torch.cat(out_pieces, dim=0)\n    return out\n"
    )


def test_the_list_takes_a_name_of_its_own() -> None:
    after = listed("for y in data:\n    out = torch.cat((out, y))", tail="out_pieces = 3\nreturn out")
    assert after is not None
    assert "out_pieces_2.append(y)" in after


@pytest.mark.parametrize(
    "loop",
    [
        "for y in data:\n    out = torch.stack((out, y))",
        "for y in data:\n    out = torch.hstack((out, y))",
        "for y in data:\n    out = torch.cat((out, y, out))",
        "for y in data:\n    out = torch.cat((y, out, y))",
        "for y in data:\n    out = torch.cat((out, y), dim=dim)",
        "for y in data:\n    print(out.shape)\n    out = torch.cat((out, y))",
        "for y in data:\n    out = torch.cat((out, y[out.shape[0]:]))",
        "for y in data:\n    try:\n        out = torch.cat((out, y))\n    except ValueError:\n        pass",
        "for y in data:\n    out = torch.cat((out,  # why\n        y))",
        "for y in data:\n    out = torch.cat((out, y))\n    y += 1",
        "for y in data:\n    y.zero_()\n    out = torch.cat((out, y))",
        "buffer = torch.zeros(3)\nfor y in data:\n    buffer[0] = y\n    out = torch.cat((out, buffer))",
        "b = torch.zeros(3)\nfor y in data:\n    b[0] = y\n    z = b.view(-1)\n    out = torch.cat((out, z))",
        "buffer = torch.zeros(3)\nfor y in data:\n    torch.add(y, 1, out=buffer)\n    out = torch.cat((out, buffer))",
        "w = g()\nfor y in data:\n    with torch.no_grad():\n        out = torch.cat((out, w))",
        "for y in data:\n    with torch.cuda.stream(s):\n        out = torch.cat((out, y))",
        "def g():\n    return out\nfor y in data:\n    out = torch.cat((out, y))",
        "global out\nfor y in data:\n    out = torch.cat((out, y))",
    ],
)
def test_loops_that_a_list_might_change_are_left(loop: str) -> None:
    start = "global out\nout = torch.empty(0)" if loop.startswith("global") else "out = torch.empty(0)"
    assert listed(loop.removeprefix("global out\n"), start) is None


@pytest.mark.parametrize(
    ("start", "loop"),
    [
        (
            "out = None",
            "for y in data:\n    if out is None: out = y * 2\n    else:\n        out = torch.cat((out, y))",
        ),
        (
            "out = None",
            "for y in data:\n    if out is None:\n        out = y; g()\n    else:\n        out = torch.cat((out, y))",
        ),
        (
            "out = None",
            "for y in data:\n    if out is None:\n        out = y\n    else:\n        out = torch.vstack((out, y))",
        ),
        (
            "out = torch.empty(0)",
            "for i in data:\n    if i == 0:\n        out = i\n    else:\n        out = torch.cat((out, i))",
        ),
        (
            "out = None",
            "for i, y in enumerate(data, 1):\n    if i == 0: out = y\n    else:\n        out = torch.cat((out, y))",
        ),
        (
            "out = None",
            "for y in data:\n    if y: pass\n    elif out is None: out = y\n    else: out = torch.cat((out, y))",
        ),
    ],
)
def test_first_values_that_differ_are_left(start: str, loop: str) -> None:
    assert listed(loop, start) is None


def test_an_exception_that_is_caught_keeps_the_cat() -> None:
    text = "import torch\ntry:\n    out = torch.empty(0)\n    for y in data:\n        out = torch.cat((out, y))\n"
    source, growth = growth_in(text + "except KeyboardInterrupt:\n    print(out)\n")
    with pytest.raises(Unfixable):
        edits.list_then_cat(source, growth)
    source, growth = growth_in(text + "except KeyboardInterrupt:\n    print('stopped')\n")
    assert edits.list_then_cat(source, growth)


@pytest.mark.parametrize(
    ("extra", "fixable"), [("", True), ("            if y: return\n", False), ("            g(self)\n", False)]
)
def test_an_attribute_is_gathered_where_nobody_sees_it_meanwhile(extra: str, fixable: bool) -> None:
    text = (
        "import torch\nclass A:\n    def f(self, data):\n        self.out = torch.empty(0)\n        for y in data:\n"
        f"{extra}            self.out = torch.cat((self.out, y))\n"
    )
    source, growth = growth_in(text)
    if not fixable:
        with pytest.raises(Unfixable):
            edits.list_then_cat(source, growth)
        return
    assert source.edited(edits.list_then_cat(source, growth)).text.endswith(
        "        out_pieces = [self.out]\n        for y in data:\n            out_pieces.append(y)\n"
        "        self.out = torch.cat(out_pieces)\n"
    )


# Sums on the device


def accumulated(loop: str, integer: bool = False) -> str | None:
    def operation(source: SourceFile, tree: ast.Module) -> list[Edit]:
        sums = [n for n in ast.walk(tree) if isinstance(n, ast.AugAssign)]
        reads = [(n, total) for total in sums for n in ast.walk(total) if isinstance(n, ast.Call)]
        read, total = next(
            r for r in reads if ast.unparse(r[0].func) == "float" or ast.unparse(r[0].func)[-4:] == "item"
        )
        return edits.accumulate_then_convert(source, read, total, statement(tree, ast.For), integer)

    return edited(loop, operation)


@pytest.mark.parametrize(
    ("before", "integer", "after"),
    [
        ("for x in d:\n    t += f(x).item()\n", False, "for x in d:\n    t += f(x).detach().float()\nt = float(t)\n"),
        (
            "for x in d:\n    t += (p == x).sum().item()\n",
            True,
            "for x in d:\n    t += (p == x).sum()\nt = int(t)\n",
        ),
        ("for x in d:\n    t += n.item() / 3\n", True, "for x in d:\n    t += n / 3\nt = float(t)\n"),
        (
            "for x in d:\n    t += l.detach().cpu().item() * len(x)",
            False,
            "for x in d:\n    t += l.detach().float() * len(x)\nt = float(t)",
        ),
        ("for x in d:\n    t += l.data.item()", False, "for x in d:\n    t += l.detach().float()\nt = float(t)"),
        ("for x in d:\n    t += float(a + b)", False, "for x in d:\n    t += (a + b).detach().float()\nt = float(t)"),
        (
            "for e in d:\n\tfor x in e:\n\t\tt += l.item()\n\t\tif i % 9 == 0: print(t / i)\n\tt = 0.0\nprint(t)\n",
            False,
            "for e in d:\n\tfor x in e:\n\t\tt += l.detach().float()\n\t\tif i % 9 == 0: print(float(t) / i)\n"
            "\tt = 0.0\nt = float(t)\nprint(t)\n",
        ),
        ("for x in d:\n    t += sqrt(l.item())\n", False, None),
        ("for x in d:\n    t += 1 / l.item()\n", False, None),
        ("for x in d:\n    t += l.item() ** 2\n", False, None),
        ("for x in d:\n    t += l.item()\n    t /= 2\n", False, None),
        ("for x in d:\n    t -= l.item()\n", False, None),
        ("for x in d:\n    s['t'] += l.item()\n", False, None),
        ("def g():\n    return t\nfor x in d:\n    t += l.item()\n", False, None),
        ("for x in d:\n    t += l.item(  # why\n    )\n", False, None),
    ],
)
def test_accumulate_then_convert(before: str, integer: bool, after: str | None) -> None:
    assert accumulated(before, integer) == after


def test_a_total_is_converted_once() -> None:
    text = "for x in d:\n    t += a.item()\n    t += b.item()\nprint(t)\n"
    once = accumulated(text)
    assert once is not None
    twice = accumulated(once)
    assert twice == "for x in d:\n    t += a.detach().float()\n    t += b.detach().float()\nt = float(t)\nprint(t)\n"
