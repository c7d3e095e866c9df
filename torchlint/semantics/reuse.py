"""What of a file's evaluation still holds when the project says something else than before.

Flow is evaluated scope by scope, and notes for each what it has read: facts of the project by their id, other scopes,
attributes of the file's classes. Only scopes that read something different now, and those that read what these give,
are evaluated anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torchlint.semantics.facts import ClassFacts, Linked
    from torchlint.semantics.flow import Flow, Key
    from torchlint.semantics.module import Module
    from torchlint.semantics.values import Value


def stale_keys(module: Module, before: Linked, after: Linked) -> set[Key] | None:
    """The evaluated scopes of a file that no longer hold, and the attributes that they have written; None where names
    or bases mean something else now, so that nothing holds.
    """
    changed = _changed_refs(before.refs, after.refs)
    members = _changed_members(module, before.classes, after.classes)
    if changed is None or members is None:
        return None
    stale: set[Key] = {*changed, *members, *(before.moves ^ after.moves), *_differing(before.returns, after.returns)}
    for name in _differing(before.parameters, after.parameters):
        function = module.function_by_id(name)
        if function is not None:
            stale.add(function.scope)
    _spread(module.flow, stale)
    return stale


def _differing(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    """The keys that say something else now, or only now or no longer."""
    for key in before.keys() | after.keys():
        if before.get(key) != after.get(key):
            yield key


def _changed_refs(before: Mapping[str, Value], after: Mapping[str, Value]) -> list[str] | None:
    """References to methods by their name alone ("?.name()") that give something else; None where a name of another
    file does, on which imports, bases and annotations stand.
    """
    changed = list(_differing(before, after))
    return changed if all(reference.startswith("?") for reference in changed) else None


def _changed_members(
    module: Module, before: Mapping[str, ClassFacts], after: Mapping[str, ClassFacts]
) -> list[str] | None:
    """Attributes ("pkg.net:Net.decoder") of other files' classes that are something else now; None where a class in
    view of the file has other bases or methods.
    """
    changed: list[str] = []
    for name in _differing(before, after):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            if module.has_met(name):
                return None
        elif (old.bases, old.methods, old.properties) != (new.bases, new.methods, new.properties):
            return None
        else:
            changed += [f"{name}.{attribute}" for attribute in _differing(old.attributes, new.attributes)]
    return changed


def _spread(flow: Flow, stale: set[Key]) -> None:
    """Add to what is stale all that follows from it.

    That is every scope that has read it, and the attributes that these have written, with all who write them: what they
    agreed on is to be found again. Where a scope has read another that was under way (they call each other, say), that
    one is stale too: so both are evaluated anew in the order in which a fresh evaluation takes them.
    """
    pending = dict(flow.reads)
    size = -1
    while size != len(stale):
        size = len(stale)
        for scope in [scope for scope, read in pending.items() if scope in stale or not read.isdisjoint(stale)]:
            stale.add(scope)
            stale |= flow.unfinished.get(scope, set())
            del pending[scope]
        for attribute, writers in flow.writers.items():
            if attribute not in stale and not writers.isdisjoint(stale):
                stale.add(attribute)
                stale |= writers
