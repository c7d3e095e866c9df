"""What a file's code means: names, kinds of values, where code runs, layer order, and the project around it."""

from torchlint.semantics.module import Module
from torchlint.semantics.project import FileSummary, Linked, ProjectLayout, link, relevant
from torchlint.semantics.values import Value

__all__ = ["FileSummary", "Linked", "Module", "ProjectLayout", "Value", "link", "relevant"]
