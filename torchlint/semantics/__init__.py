"""What a file's code means: names, kinds of values, where code runs, layer order, and the project around it."""

from torchlint.semantics.facts import FileSummary, Linked
from torchlint.semantics.layout import ProjectLayout, relevant
from torchlint.semantics.module import Module
from torchlint.semantics.project import link
from torchlint.semantics.values import Value

__all__ = ["FileSummary", "Linked", "Module", "ProjectLayout", "Value", "link", "relevant"]
