"""What a rule is, and what it reports.

A rule is one class whose docstring is its documentation page and whose `check` asks a `Module` for facts and yields
findings. The registry finds rules by listing the package `torchlint.rules`.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterator, Sequence

    from torchlint.fixing.edits import Edit
    from torchlint.semantics import Module


class Level(enum.Enum):
    """How much a finding matters: a warning fails the run, an info is shown."""

    WARNING = "warning"
    INFO = "info"


class Safety(enum.Enum):
    """What a fix may change: nothing (safe), or numerics, random stream, state_dict, memory or printed output
    (unsafe).
    """

    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Fix:
    """A repair that is described now and built only when somebody asks for its edits.

    `build` returns every edit of the repair, or raises `torchlint.fixing.edits.Unfixable` where the text does not allow
    it; `reason` says why an unsafe fix is unsafe.
    """

    message: str
    safety: Safety
    build: Callable[[], Sequence[Edit]]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One place in one file, as a rule sees it: the node, what to say about it, and perhaps a fix."""

    rule: type[Rule]
    node: ast.expr | ast.stmt
    message: str
    fix: Fix | None = None


class Rule(ABC):
    """One habit that torchlint knows. Subclasses say what it is in their docstring and find it in `check`.

    `screen` names the literal words of which a file must hold at least one before the rule can fire (an empty screen
    means any file); `core` marks the rules held to the highest accuracy.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    level: ClassVar[Level]
    screen: ClassVar[tuple[str, ...]] = ()
    default: ClassVar[bool] = True
    fixable: ClassVar[Safety | None] = None

    @abstractmethod
    def check(self, module: Module) -> Iterator[Finding]:
        """Yield the findings of this rule in `module`, in any order."""

    def finding(self, node: ast.expr | ast.stmt, message: str, fix: Fix | None = None) -> Finding:
        """A finding of this rule at `node`."""
        return Finding(type(self), node, message, fix)

    @classmethod
    def family(cls) -> str:
        """The family's folder name in `rules/`, such as `sync`; `custom` for a rule from elsewhere."""
        package, _, module = cls.__module__.partition("torchlint.rules.")
        return module.split(".")[0] if module and not package else "custom"

    @classmethod
    def page(cls) -> str:
        """The rule's documentation page: its docstring, dedented."""
        return inspect.cleandoc(cls.__doc__ or "")


@cache
def all_rules() -> tuple[type[Rule], ...]:
    """Every rule of the package `torchlint.rules`, in code order."""
    import torchlint.rules as rules

    found: dict[str, type[Rule]] = {}
    for info in pkgutil.walk_packages(rules.__path__, rules.__name__ + "."):
        if info.ispkg:
            continue
        for member in vars(importlib.import_module(info.name)).values():
            if (
                inspect.isclass(member)
                and issubclass(member, Rule)
                and member is not Rule
                and member.__module__ == info.name
            ):
                if member.code in found:
                    raise ValueError(
                        f"{member.code} is defined by both {found[member.code].__module__} and {info.name}"
                    )
                found[member.code] = member
    return tuple(found[code] for code in sorted(found))
