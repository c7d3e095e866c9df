"""The oldest torch that a project supports, from the project's own metadata. Nothing of the project is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_TARGET = (2, 0)

Target = tuple[int, int]

_POETRY_BOUND = re.compile(r"\s*(?P<operator>\^|~=|~|>=|>|===?|=|<=|<|!=)?\s*v?(?P<version>\d+(?:\.\d+)*)")
_WHEEL = re.compile(r"(?:^|/)torch-(?P<version>\d+(?:\.\d+)*)")


def find_target_torch(file_folder: Path, root: Path) -> tuple[Target, str]:
    """The target of the files in a folder, and where it is said.

    The nearest folder, up to and with `root`, whose metadata gives `torch` a lower bound decides; where it gives
    several, the lowest. Metadata that cannot be read says nothing.
    """
    return TargetFinder(root).find(file_folder)


class TargetFinder:
    """`find_target_torch` for many folders of one project, each of which is read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._found: dict[Path, tuple[Target, str]] = {}

    def find(self, folder: Path) -> tuple[Target, str]:
        """The target of the files in a folder, and where it is said."""
        if folder not in self._found:
            self._found[folder] = self._look(folder)
        return self._found[folder]

    def _look(self, folder: Path) -> tuple[Target, str]:
        bounds = [(target, f"{path}: {text}") for path, text, target in _bounds_in(folder)]
        if bounds:
            return min(bounds)
        if folder in (self._root, folder.parent):
            return DEFAULT_TARGET, "default"
        return self.find(folder.parent)


def _bounds_in(folder: Path) -> Iterator[tuple[Path, str, Target]]:
    """Each lower bound in a folder's metadata: the file, the requirement, the version."""
    for path, read in _metadata_files(folder):
        try:
            text = path.read_bytes().decode("utf-8-sig", "replace")
        except OSError:
            continue
        if "torch" not in text:
            continue
        try:
            bounds = list(read(text))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        for requirement, target in bounds:
            yield path, requirement, target


Bounds = Iterator[tuple[str, Target]]


def _metadata_files(folder: Path) -> Iterator[tuple[Path, Callable[[str], Bounds]]]:
    yield folder / "pyproject.toml", _in_pyproject
    yield folder / "setup.cfg", _in_setup_cfg
    yield folder / "setup.py", _in_setup_py
    for pattern in ("requirements*.txt", "requirements/*.txt"):
        for path in sorted(folder.glob(pattern)):
            yield path, _in_requirements


def _in_pyproject(text: str) -> Bounds:
    from torchlint.toml import parse_toml

    document = parse_toml(text)
    yield from _bounds(_strings(_at(document, "project", "dependencies")))
    for key in (("project", "optional-dependencies"), ("dependency-groups",)):
        table = _at(document, *key)
        for requirements in table.values() if isinstance(table, dict) else ():
            yield from _bounds(_strings(requirements))
    yield from _in_poetry(_at(document, "tool", "poetry"))


def _in_poetry(poetry: Any) -> Bounds:
    groups = _at(poetry, "group")
    tables = [_at(poetry, "dependencies"), _at(poetry, "dev-dependencies")]
    tables += [_at(group, "dependencies") for group in groups.values()] if isinstance(groups, dict) else []
    for table in tables:
        wanted = _at(table, "torch")
        for entry in wanted if isinstance(wanted, list) else [wanted]:
            constraint = _at(entry, "version") if isinstance(entry, dict) else entry
            if isinstance(constraint, str) and (target := _poetry_target(constraint)):
                yield f'torch = "{constraint}"', target


def _poetry_target(constraint: str) -> Target | None:
    """The lower bound of a Poetry constraint such as "^2.0", ">=1.8,<3" or "1.13.* || ^2.1"."""
    lowest = []
    for alternative in constraint.split("||"):
        pieces = [_POETRY_BOUND.match(piece) for piece in alternative.split(",")]
        bounds = [
            _major_minor(piece["version"]) for piece in pieces if piece and piece["operator"] not in ("<", "<=", "!=")
        ]
        if bounds:
            lowest.append(max(bounds))
    return min(lowest, default=None)


def _in_setup_cfg(text: str) -> Bounds:
    import configparser

    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(str(error)) from error
    yield from _bounds(parser.get("options", "install_requires", fallback="").split("\n"))
    if parser.has_section("options.extras_require"):
        for requirements in parser["options.extras_require"].values():
            yield from _bounds(requirements.split("\n"))


def _in_setup_py(text: str) -> Bounds:
    """`install_requires` and `extras_require` where they are literals, or names bound once to literals."""
    tree = ast.parse(text)
    bindings: dict[str, list[ast.expr]] = {}
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    bindings.setdefault(target.id, []).append(statement.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in ("install_requires", "extras_require"):
            value = node.value
            if isinstance(value, ast.Name) and len(bindings.get(value.id, ())) == 1:
                value = bindings[value.id][0]
            # Elements that are no literals are skipped, not the whole list.
            yield from _bounds(_literals(value))


def _literals(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from node.value.split("\n")
    elif isinstance(node, (ast.List, ast.Tuple)):
        for element in node.elts:
            yield from _literals(element)
    elif isinstance(node, ast.Dict):
        for value in node.values:
            yield from _literals(value)


def _in_requirements(text: str) -> Bounds:
    joined = re.sub(r"\\\r?\n", " ", text)
    lines = (re.sub(r"(?:^|\s)#.*", "", line) for line in re.split(r"\r\n|\r|\n", joined))
    return _bounds(re.sub(r"\s--hash=\S+", "", line) for line in lines)


def _bounds(requirements: Iterable[str]) -> Bounds:
    for text in requirements:
        if re.match(r"\s*torch(?![\w-])", text, re.IGNORECASE) and (target := _requirement_target(text.strip())):
            yield text.strip(), target


def _requirement_target(text: str) -> Target | None:
    """The lower bound of a requirement such as `torch>=1.8,<3; python_version < "3.12"`."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    if requirement.url:
        wheel = _WHEEL.search(requirement.url)
        return _major_minor(wheel["version"]) if wheel else None
    bounds = [
        _major_minor(specifier.version)
        for specifier in requirement.specifier
        if specifier.operator in (">=", ">", "==", "===", "~=")
    ]
    return max(bounds, default=None)


def _major_minor(version: str) -> Target:
    numbers = re.findall(r"\d+", version.partition("+")[0])
    return int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0


def _at(document: Any, *keys: str) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
