"""Bring in architecture decision records: Nygard's, adr-tools', MADR's and those that this project writes itself."""

from decisions.importing.adrs import AdrReport, import_adrs
from decisions.importing.folder import record_names
from decisions.importing.reading import Adr, read_adr

__all__ = ["Adr", "AdrReport", "import_adrs", "read_adr", "record_names"]
