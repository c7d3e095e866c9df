"""torchlint reads PyTorch code, says where it wastes the GPU, and repairs what it can.

The names below are the public interface; everything else may change between versions. They are imported on first use,
so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchlint.rule import Finding, Fix, Level, Rule, Safety, all_rules

__version__ = "0.1.0"
__all__ = ["Finding", "Fix", "Level", "Rule", "Safety", "__version__", "all_rules"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from torchlint import rule

        return getattr(rule, name)
    raise AttributeError(f"module 'torchlint' has no attribute {name!r}")
