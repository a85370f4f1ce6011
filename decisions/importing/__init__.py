"""Import of architecture decision records in the formats of Nygard, adr-tools, MADR and this project."""

from decisions.importing.adrs import AdrReport, import_adrs, record_names
from decisions.importing.reading import Adr, read_adr
