"""Settings: from pyproject.toml, torchlint.toml and the command line to one `Config` for each file.

`[tool.torchlint]` in pyproject.toml and a torchlint.toml (no table header) hold the same keys; the file nearest to the
linted file counts, alone. What the command line says comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

OutputFormat = Literal[
    "full", "concise", "json", "json-lines", "lsp", "sarif", "github", "gitlab", "junit", "azure", "html"
]
FailOn = Literal["warning", "info"]


class ConfigError(Exception):
    """A setting that cannot be used. The message names the file, the place where it is known, and what to do."""


class Settings(msgspec.Struct, frozen=True, array_like=True):
    """What rules may ask of the configuration. `dataloader_workers` is the `num_workers` that TL301 suggests."""

    dataloader_workers: int = 4


class Config(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, omit_defaults=True):
    """The keys of a configuration file, in the order in which `torchlint config` shows them.

    `select`, `ignore`, `extend-select` and the values of `per-file-ignores` hold codes ("TL101"), prefixes ("TL1"),
    rule names ("sync-in-loop") or "ALL". `plugins` holds paths of files with rules of the project's own.
    """

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    per_file_ignores: dict[str, tuple[str, ...]] = {}
    exclude: tuple[str, ...] | None = None
    extend_exclude: tuple[str, ...] = ()
    respect_gitignore: bool = True
    target_torch: str | None = None
    dataloader_workers: int = 4
    fail_on: FailOn = "warning"
    unsafe_fixes: bool = False
    output_format: OutputFormat = "full"
    cache_dir: str | None = None
    plugins: tuple[str, ...] = ()


KEYS: dict[str, str] = {field.encode_name: field.name for field in msgspec.structs.fields(Config)}


@dataclass(frozen=True)
class ConfigFile:
    """One source of settings: what it says, in which folder its paths begin, and its path (None: the command line)."""

    config: Config
    keys: frozenset[str]
    folder: Path
    path: Path | None = None


@dataclass(frozen=True)
class Resolved:
    """What is in force for some files: the configuration file nearest to them (if any) under the command line's say.

    `broken`: that file cannot be used, so the defaults stand in for it; nothing may be written on their authority.
    """

    file: ConfigFile | None
    overrides: ConfigFile
    broken: bool = False

    def value(self, key: str) -> Any:
        """The value in force of a kebab-case key."""
        return getattr(self._holder(key).config, KEYS[key])

    def origin(self, key: str) -> str:
        """Where the value of a key comes from: "command line", a path, or "default"."""
        holder = self._holder(key)
        if key not in holder.keys:
            return "default"
        return str(holder.path) if holder.path else "command line"

    def _holder(self, key: str) -> ConfigFile:
        if key in self.overrides.keys or self.file is None:
            return self.overrides
        return self.file

    @property
    def layers(self) -> tuple[ConfigFile, ...]:
        """The sources, those that count less first."""
        return (self.file, self.overrides) if self.file else (self.overrides,)

    @cached_property
    def settings(self) -> Settings:
        return Settings(self.value("dataloader-workers"))

    @cached_property
    def target_torch(self) -> tuple[int, int] | None:
        """The configured target, None where the project's metadata decides."""
        text = self.value("target-torch")
        return None if text is None else parse_target(text, self.origin("target-torch"))


def parse_target(text: str, where: str) -> tuple[int, int]:
    """A torch version such as "2.1" or "1.13.1" as (2, 1). Raises ConfigError for anything else."""
    major, _, minor = text.strip().partition(".")
    minor = minor.split(".")[0] or "0"
    if not (major.isdecimal() and minor.isdecimal()):
        raise ConfigError(f"{where}: target-torch is {text!r}; it has to be a version such as 2.1")
    return int(major), int(minor)


def overrides_from(values: Mapping[str, object], folder: Path) -> ConfigFile:
    """The settings that the command line gives, by kebab-case key; absent options are left out of `values`."""
    return ConfigFile(_convert(dict(values), "command line", ""), frozenset(values), folder)


class ConfigFinder:
    """Finds the configuration of a folder, and reads each file once. With `isolated`, the command line is all there is.

    A broken file that is found costs one message in `problems`; a broken `explicit` one raises ConfigError.
    """

    def __init__(self, overrides: ConfigFile, explicit: Path | None = None, isolated: bool = False) -> None:
        self.problems: list[str] = []
        self._overrides = overrides
        self._fixed: Resolved | None = None
        self._found: dict[Path, Resolved] = {}
        if explicit is not None:
            self._fixed = Resolved(read_config(explicit), overrides)
        elif isolated:
            self._fixed = Resolved(None, overrides)

    @property
    def files(self) -> list[ConfigFile]:
        """The configuration files that were found so far, each once."""
        resolved = [self._fixed] if self._fixed is not None else self._found.values()
        found = {found.file.path: found.file for found in resolved if found is not None and found.file is not None}
        return list(found.values())

    def for_folder(self, folder: Path) -> Resolved:
        """What is in force for the files in an absolute folder."""
        if self._fixed is not None:
            return self._fixed
        if folder not in self._found:
            self._found[folder] = self._find(folder)
        return self._found[folder]

    def _find(self, folder: Path) -> Resolved:
        try:
            file = _config_in(folder)
        except ConfigError as error:
            self.problems.append(f"{error}; its files are linted with the default settings, and not fixed")
            return Resolved(None, self._overrides, broken=True)
        if file is not None:
            return Resolved(file, self._overrides)
        if folder.parent == folder:
            return Resolved(None, self._overrides)
        return self.for_folder(folder.parent)


def _config_in(folder: Path) -> ConfigFile | None:
    """The configuration file of one folder: torchlint.toml before pyproject.toml with a [tool.torchlint] table."""
    own = folder / "torchlint.toml"
    if own.is_file():
        return read_config(own)
    shared = folder / "pyproject.toml"
    if shared.is_file():
        return read_config(shared, required=False)
    return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_config(path: Path, required: bool = True) -> ConfigFile | None:
    """The configuration that a TOML file holds; None for a pyproject.toml without our table unless it is `required`."""
    text, table = _load_toml(path)
    if path.name == "pyproject.toml":
        tool = table.get("tool")
        section = tool.get("torchlint") if isinstance(tool, dict) else None
        if section is None:
            if required:
                return ConfigFile(Config(), frozenset(), path.parent, path)
            return None
    else:
        section = table
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: [tool.torchlint] has to be a table")
    return ConfigFile(_convert(section, str(path), text), frozenset(section), path.parent, path)


def _load_toml(path: Path) -> tuple[str, dict[str, Any]]:
    from torchlint.toml import parse_toml

    try:
        text = _read(path).decode("utf-8-sig")
        return text, parse_toml(text)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from error


def _convert(section: dict[str, Any], where: str, text: str) -> Config:
    for key in section:
        if key not in KEYS:
            raise ConfigError(f"{_place(where, text, key)}: unknown key {key!r}{did_you_mean(key, KEYS)}")
    try:
        config = msgspec.convert(section, Config)
    except msgspec.ValidationError as error:
        message, _, at = str(error).partition(" - at `$.")
        key = at.rstrip("`").partition("[")[0]
        raise ConfigError(f"{_place(where, text, key)}: {key}: {message}") from error
    if config.dataloader_workers < 1:
        raise ConfigError(f"{_place(where, text, 'dataloader-workers')}: dataloader-workers has to be 1 or more")
    if config.target_torch is not None:
        parse_target(config.target_torch, _place(where, text, "target-torch"))
    return config


def _place(where: str, text: str, key: str) -> str:
    """`where` with the line that sets `key`, as far as a look at the text tells."""
    import re

    section = text.find("[tool.torchlint")
    found = (
        re.compile(rf"^\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", re.MULTILINE).search(text, max(section, 0))
        if key
        else None
    )
    header = re.search(rf"^\s*\[tool\.torchlint\.{re.escape(key)}\b", text, re.MULTILINE) if key and not found else None
    match = found or header
    return f"{where}:{text.count(chr(10), 0, match.end()) + 1}" if match else where


def did_you_mean(word: str, known: Mapping[str, object] | list[str]) -> str:
    """A hint at the known word nearest to a mistaken one; where none is near, all of a short list."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    if near:
        return f" (did you mean {near[0]!r}?)"
    return f" (known: {', '.join(known)})" if len(known) <= 16 else ""
