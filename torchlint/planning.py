"""From a project's files and the configuration to a plan for each file that is to be linted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.cache import Cache, cache_folder
from torchlint.checker import Plan
from torchlint.config import ConfigError, ConfigFinder, Resolved
from torchlint.custom_rules import RuleSet
from torchlint.diagnostics import is_builtin
from torchlint.discovery import project_root
from torchlint.reports.output import display_path
from torchlint.selection import codes_for_file, selected_codes
from torchlint.torch_target import TargetFinder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlint.discovery import Project
    from torchlint.engine import Registry


class Planner:
    """Makes plans. What is wrong with a configuration costs one message in `problems`, and the defaults stand in."""

    def __init__(self, configs: ConfigFinder, registry: Registry, action: str, build_edits: bool) -> None:
        self.problems: list[str] = []
        self._configs = configs
        self._registry = registry
        self._action = action
        self._build_edits = build_edits
        self._selections: dict[int, frozenset[str] | None] = {}

    def plans(self, project: Project) -> Iterator[Plan]:
        """A plan for each target of the project, in order."""
        targets = TargetFinder(Path(project.root))
        for path in project.targets:
            resolved = self._configs.for_folder(Path(os.path.dirname(path)))
            codes = self._codes(resolved, path)
            yield Plan(
                path=path,
                relative=project.relative(path),
                codes=self._default_codes if codes is None else codes,
                settings=resolved.settings,
                target_torch=resolved.target_torch or targets.find(Path(os.path.dirname(path)))[0],
                action="check" if resolved.broken or codes is None else self._action,
                unsafe=resolved.value("unsafe-fixes"),
                build_edits=self._build_edits,
                fail_on=resolved.value("fail-on"),
                shown=display_path(path),
                stamp=self._registry.stamp(codes or ()) if isinstance(self._registry, RuleSet) else "",
                may_write=not resolved.broken and codes is not None,
            )

    @property
    def _default_codes(self) -> frozenset[str]:
        return frozenset(code for code, rule in self._registry.items() if rule.default and is_builtin(code))

    def _codes(self, resolved: Resolved, path: str) -> frozenset[str] | None:
        """The codes that are on for a file, None where its configuration names rules that do not exist."""
        try:
            if id(resolved) not in self._selections:
                self._selections[id(resolved)] = selected_codes(resolved, self._registry)
            codes = self._selections[id(resolved)]
            return None if codes is None else codes_for_file(resolved, codes, path, self._registry)
        except ConfigError as error:
            self._selections[id(resolved)] = None
            self.problems.append(f"{error}; its files are linted with the default rules, and not fixed")
            return None


def project_cache(configs: ConfigFinder, root: str, writes: bool = True) -> Cache:
    """The cache of the project at `root`, where the configuration says it is."""
    resolved = configs.for_folder(Path(root))
    named = resolved.value("cache-dir")
    holder = resolved.file if resolved.file and "cache-dir" not in resolved.overrides.keys else resolved.overrides
    folder = cache_folder(root, holder.folder / named if named else None, project_root(root)[1])
    return Cache(folder, root, writes=writes)
