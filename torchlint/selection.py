"""Which rules are on: from the selectors of a configuration to a set of codes.

A selector is a code ("TL101"), a prefix ("TL1"), a rule name ("sync-in-loop") or "ALL". A more specific one wins over a
less specific one, so that `select = ["TL1"], ignore = ["TL101"]` and `select = ["TL101"], ignore = ["TL1"]` both do
what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from torchlint.config import ConfigError, Resolved, did_you_mean
from torchlint.custom_rules import RuleSet
from torchlint.globs import Globs
from torchlint.suppressions import has_prefix, matches

if TYPE_CHECKING:
    from torchlint.config import ConfigFile
    from torchlint.rule import Rule

Registry = Mapping[str, "type[Rule]"]

# Silence about a file that cannot be parsed would be a clean bill of health, so only its own name switches this off.
ALWAYS = "TL000"


def default_registry() -> Registry:
    """The built-in rules by code."""
    from torchlint.rule import all_rules

    return {rule.code: rule for rule in all_rules()}


def selected_codes(resolved: Resolved, registry: Registry) -> frozenset[str]:
    """The codes that are on, per-file ignores aside. Raises ConfigError for a selector that means no rule."""
    registry = _known(resolved, registry)
    codes = {code for code, rule in registry.items() if rule.default}
    for layer in resolved.layers:
        codes = _apply(layer, codes, registry)
        for selectors in layer.config.per_file_ignores.values():
            expand(selectors, registry, _where(layer, "per-file-ignores"))
    return frozenset(codes)


def codes_for_file(resolved: Resolved, codes: frozenset[str], path: str, registry: Registry) -> frozenset[str]:
    """`codes` without those that `per-file-ignores` takes from this file."""
    registry = _known(resolved, registry)
    for layer in resolved.layers:
        for pattern, selectors in layer.config.per_file_ignores.items():
            if Globs((pattern,), str(layer.folder)).match(path):
                codes -= expand(selectors, registry, _where(layer, "per-file-ignores"))
    return codes


def expand(selectors: Iterable[str], registry: Registry, where: str) -> frozenset[str]:
    """The codes that the selectors mean."""
    return frozenset(code for selector in selectors for code in _meaning(selector, registry, where)[1])


def _apply(layer: ConfigFile, codes: set[str], registry: Registry) -> set[str]:
    config = layer.config
    steps = [(selector, True, "select") for selector in config.select or ()]
    steps += [(selector, True, "extend-select") for selector in config.extend_select]
    steps += [(selector, False, "ignore") for selector in config.ignore]
    chosen = {code for code in codes if code == ALWAYS} if config.select is not None else set(codes)
    meanings = [(*_meaning(selector, registry, _where(layer, key)), turn_on) for selector, turn_on, key in steps]
    # At one specificity what is ignored wins over what is selected.
    for specificity, meant, turn_on in sorted(meanings, key=lambda step: (step[0], not step[2])):
        if turn_on:
            chosen |= meant
        else:
            chosen -= meant - ({ALWAYS} if specificity < len(ALWAYS) else set())
    return chosen


def _meaning(selector: str, registry: Registry, where: str) -> tuple[int, frozenset[str]]:
    """How specific a selector is, and the codes that it means."""
    if selector.upper() == "ALL":
        return 0, frozenset(registry)
    named = frozenset(code for code, rule in registry.items() if rule.name == selector.lower())
    if named:
        return len(ALWAYS), named
    prefix = selector.upper()
    codes = frozenset(code for code in registry if has_prefix(code, prefix))
    if not codes and not _is_excused(selector, registry, where):
        known = [*registry, *(rule.name for rule in registry.values()), "ALL"]
        nearest = selector.upper() if selector.upper().startswith("TL") else selector.lower()
        raise ConfigError(
            f"{where}: unknown rule {selector!r}{did_you_mean(nearest, known)}; `torchlint rules` lists them all"
        )
    return len(prefix), codes


def _known(resolved: Resolved, registry: Registry) -> Registry:
    """The rules that exist for the files of a configuration."""
    return registry.known_to(resolved.file) if isinstance(registry, RuleSet) else registry


def _is_excused(selector: str, registry: Registry, where: str) -> bool:
    """Whether this rule may be named although it does not exist here: the plugins that would define it are not loaded,
    or the command line means files under another configuration.
    """
    if not isinstance(registry, RuleSet):
        return False
    if where.startswith("--"):
        return any(matches(selector, code, name) for code, name in registry.elsewhere.items())
    return registry.withheld and not selector.upper().startswith("TL")


def _where(layer: ConfigFile, key: str) -> str:
    return f"{layer.path}: {key}" if layer.path else f"--{key}"
