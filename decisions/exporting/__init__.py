"""Give decisions away: as MADR Markdown, a file each, or as one Mermaid graph."""

from decisions.exporting.madr import madr_files
from decisions.exporting.mermaid import mermaid_graph
from decisions.exporting.selection import chosen_decisions

__all__ = ["chosen_decisions", "madr_files", "mermaid_graph"]
