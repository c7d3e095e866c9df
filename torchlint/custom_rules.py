"""Rules from elsewhere, beside the built-in ones: of installed packages, and of a project's own files.

An installed package names its rules under the entry point group `torchlint.rules`. A project names files in its
configuration, `plugins = ["./lint_rules.py"]`; loading one runs code of the project, so that only happens where the
user has allowed it: on the command line, or in the user's own settings file, which no project can change.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from torchlint.config import ConfigError
from torchlint.rule import Level, Rule, all_rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torchlint.config import ConfigFile

GROUP = "torchlint.rules"

_CODE = re.compile(r"[A-Z]{2,8}[0-9]{1,4}")
_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_METADATA = (".dist-info", ".egg-info")


class RuleSet(dict[str, type[Rule]]):
    """All rules by code.

    problems: messages about plugins that are broken; the run goes on without them and ends with status 2.
    warnings: messages about plugins that were not loaded because nobody allowed it.
    withheld: whether the rules that some configuration names may be missing here for one of these reasons.
    """

    def __init__(self, rules: Iterable[type[Rule]]) -> None:
        super().__init__((rule.code, rule) for rule in rules)
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.withheld = False
        self.elsewhere: dict[str, str] = {}  # names by code of rules that other configurations know
        self._files: dict[str, frozenset[str]] = {}  # the codes of each plugin file
        self._stamps: dict[str, str] = {}  # the version of each custom rule's code

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker that does not inherit our memory finds the modules of plugin files by loading them again.
        return _reloaded, (tuple(self._files), self.withheld)

    def add(self, plugin: _Plugin, is_file: bool = False) -> None:
        """Take in the rules of one plugin; one that cannot be used costs a message."""
        added = set()
        for rule in plugin.rules:
            if complaint := self._complaint(rule):
                self.problems.append(f"{plugin.where}: {complaint}")
            else:
                self[rule.code] = rule
                self._stamps[rule.code] = plugin.stamp
                added.add(rule.code)
        if is_file:
            self._files[plugin.where] = frozenset(added)

    def known_to(self, file: ConfigFile | None) -> RuleSet:
        """The rules without those of plugin files that this configuration does not name."""
        wanted = set(plugin_files(file)) if file is not None else set()
        hidden = {code for path, codes in self._files.items() if path not in wanted for code in codes}
        if not hidden and self.withheld == (not wanted <= self._files.keys()):
            return self
        known = RuleSet(rule for code, rule in self.items() if code not in hidden)
        known.withheld = not wanted <= self._files.keys()
        known.elsewhere = {code: self[code].name for code in hidden}
        return known

    def stamp(self, codes: Iterable[str]) -> str:
        """What tells the present code of the custom rules among these from an edited one; "" where there are none."""
        return " ".join(f"{code}={self._stamps[code]}" for code in sorted(self._stamps.keys() & set(codes)))

    def _complaint(self, rule: type[Rule]) -> str:
        """Why a custom rule cannot be taken in, or ""."""
        shown = f"rule {rule.__name__}"
        code, name = getattr(rule, "code", None), getattr(rule, "name", None)
        if not isinstance(code, str) or not _CODE.fullmatch(code):
            return f"{shown}: its code is {code!r}; it has to be 2 to 8 capital letters and 1 to 4 digits, like ACME001"
        if code.startswith("TL") and code[2].isdigit():
            return f"{shown}: its code is {code}; codes that begin with TL are torchlint's own: choose other letters"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return f"{shown}: its name is {name!r}; it has to be lower-case words joined by hyphens"
        if not isinstance(getattr(rule, "level", None), Level):
            return f"{shown}: its level has to be Level.WARNING or Level.INFO"
        for other in self.values():
            if code == other.code or name == other.name:
                return f"{shown}: {other.__module__} defines a rule {other.code} {other.name} already"
        return ""


class _Plugin(NamedTuple):
    """The rules of one plugin, where messages say they come from, and what changes when their code does."""

    where: str
    rules: tuple[type[Rule], ...]
    stamp: str


class UserSettings(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """The keys of the user's own settings file.

    `allow_plugins`: whether files that projects name in `plugins` are loaded; a list of folders allows it below them.
    """

    allow_plugins: bool | tuple[str, ...] = False

    def allows(self, folder: Path) -> bool:
        """Whether the configuration in this folder may load its plugins."""
        if isinstance(self.allow_plugins, bool):
            return self.allow_plugins
        trusted = [Path(os.path.realpath(os.path.expanduser(name))) for name in self.allow_plugins]
        real = Path(os.path.realpath(folder))
        return any(real.is_relative_to(place) for place in trusted)


def load_rules(configs: Iterable[ConfigFile] = (), allow: bool = False) -> RuleSet:
    """The built-in rules, those of installed packages, and those of the plugin files that the configurations name.

    Plugin files are loaded with `allow`, or where the user's settings allow it. Nothing raises: see `problems`.
    """
    rules = RuleSet(all_rules())
    for load in _installed():
        _add(rules, load)
    for config in configs:
        if config.config.plugins:
            _add_files(rules, config, allow)
    return rules


def plugin_files(config: ConfigFile) -> tuple[str, ...]:
    """The absolute paths of the plugin files that a configuration names."""
    return tuple(os.path.abspath(config.folder / os.path.expanduser(name)) for name in config.config.plugins)


def user_settings_file() -> Path:
    """Where the user's own settings are: `~/.config/torchlint/torchlint.toml` on Linux, or the place that the platform
    has for it.
    """
    from platformdirs import user_config_path

    return user_config_path("torchlint", appauthor=False, roaming=True) / "torchlint.toml"


def _add_files(rules: RuleSet, config: ConfigFile, allow: bool) -> None:
    try:
        allowed = allow or _user_settings().allows(config.folder)
    except ConfigError as error:
        rules.problems.append(str(error))
        allowed = False
    if not allowed:
        rules.withheld = True
        rules.warnings.append(
            f"{config.path}: plugins are not loaded ({', '.join(config.config.plugins)}): code of a project runs only "
            f"where you allow it, with --allow-plugins or `allow-plugins = true` in {user_settings_file()}"
        )
        return
    for path in plugin_files(config):
        _add(rules, _File(path))


def _add(rules: RuleSet, load: _File | _EntryPoint) -> None:
    """Load one plugin. Whatever its code raises, an attempt to end the program included, costs one message."""
    if isinstance(load, _File) and load.path in rules._files:
        return
    try:
        rules.add(load(), isinstance(load, _File))
    except (Exception, SystemExit) as error:
        rules.withheld = True
        text = " ".join(str(error).split())[:300]
        rules.problems.append(f"{load.where}: its rules cannot be loaded: {type(error).__name__}: {text}")


class _File:
    """A plugin file of a project, by its absolute path."""

    def __init__(self, path: str) -> None:
        self.path = self.where = path

    def __call__(self) -> _Plugin:
        import hashlib

        data = Path(self.path).read_bytes()
        stamp = hashlib.blake2b(data, digest_size=16).hexdigest()
        place = hashlib.blake2b(os.fsencode(self.path), digest_size=8).hexdigest()
        # The name holds the content, so that a process which outlives an edit does not take the old module for the new
        # one; and no bytecode is kept, which would be told from a new one only by the second and the size.
        name = f"torchlint_plugin_{place}_{stamp}"
        module = sys.modules.get(name) or _executed(name, self.path, data)
        return _Plugin(self.path, tuple(_rules_of(module)), stamp)


def _executed(name: str, path: str, source: bytes) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


class _EntryPoint:
    """An entry point of an installed package."""

    def __init__(self, point: Any, package: str, version: str) -> None:
        self._point = point
        self._version = version
        self.where = f"package {package} (entry point {point.name!r} of {GROUP})"

    def __call__(self) -> _Plugin:
        rules = tuple(_rules_of(self._point.load()))
        return _Plugin(self.where, rules, f"{self._version}:{max((_newest(rule) for rule in rules), default=0)}")


def _newest(rule: type[Rule]) -> int:
    """When the youngest file of the top package of a rule changed, in nanoseconds."""
    from torchlint.cache import newest

    top = sys.modules[rule.__module__.partition(".")[0]]
    folders = list(getattr(top, "__path__", ()))
    if folders:
        return max(newest(folder) for folder in folders)
    return os.stat(top.__file__).st_mtime_ns if top.__file__ else 0


def _rules_of(thing: object) -> Iterator[type[Rule]]:
    """The rules that a module, a class, or a list of both means. Raises TypeError for anything else."""
    if isinstance(thing, ModuleType):
        yield from (member for member in vars(thing).values() if _is_custom(member))
    elif _is_custom(thing):
        yield thing  # type: ignore[misc]
    elif isinstance(thing, Iterable) and not isinstance(thing, (str, bytes)):
        for item in thing:
            yield from _rules_of(item)
    else:
        raise TypeError(f"{thing!r} is no module, no rule and no list of rules")


def _is_custom(member: object) -> bool:
    """Whether a module's member is a rule that can run, and not one of torchlint's own that it imports."""
    is_rule = isinstance(member, type) and issubclass(member, Rule) and not getattr(member, "__abstractmethods__", ())
    return is_rule and member.__module__.partition(".")[0] != "torchlint"


@cache
def _installed() -> tuple[_EntryPoint, ...]:
    """The entry points of installed packages, of the first package on the path where two have one name.

    `importlib.metadata` takes longer to import than a clean run has time for, so it is asked only about folders that
    hold an entry point of ours.
    """
    folders = [folder for folder in _site_folders(sys.path) if _has_entry_points(folder)]
    if not folders:
        return ()
    from importlib import metadata

    found: dict[str, list[_EntryPoint]] = {}
    for distribution in metadata.distributions(path=folders):
        package = distribution.metadata["Name"]
        points = [point for point in distribution.entry_points if point.group == GROUP]
        if points:
            found.setdefault(package, [_EntryPoint(point, package, distribution.version) for point in points])
    return tuple(point for package in sorted(found) for point in found[package])


def _site_folders(path: Sequence[str]) -> Iterator[str]:
    """The folders of the import path but the current one: a checkout is not installed because somebody stands in it."""
    here = os.path.realpath(os.getcwd())
    for folder in dict.fromkeys(path):
        if folder and os.path.realpath(folder) != here and os.path.isdir(folder):
            yield folder


def _has_entry_points(folder: str) -> bool:
    try:
        names = [name for name in os.listdir(folder) if name.endswith(_METADATA)]
    except OSError:
        return False
    return any(_mentions_group(os.path.join(folder, name, "entry_points.txt")) for name in names)


def _mentions_group(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return f"[{GROUP}]".encode() in os.read(handle, 1 << 20)
    except OSError:
        return False
    finally:
        os.close(handle)


def _user_settings() -> UserSettings:
    """The user's settings. Raises ConfigError for a file that cannot be used."""
    from torchlint.toml import parse_toml

    path = user_settings_file()
    try:
        table: Mapping[str, object] = parse_toml(path.read_text(encoding="utf-8-sig"))
        return msgspec.convert(table, UserSettings)
    except FileNotFoundError:
        return UserSettings()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # no UTF-8, no TOML, or another key or type
        raise ConfigError(f"{path}: cannot be used: {error}; its one key is allow-plugins") from error


def _reloaded(files: tuple[str, ...], withheld: bool) -> RuleSet:
    rules = load_rules()
    for path in files:
        _add(rules, _File(path))
    rules.withheld = withheld
    return rules
