from memoryhub.core.admin import cells
from memoryhub.core.admin.access import needs, needs_to_change, next_page
from memoryhub.core.admin.base import HubChangeList, HubModelAdmin
from memoryhub.core.admin.events import RawEventAdmin
from memoryhub.core.admin.facets import ConditionFilter, DefaultFilter, Facet, SinceFilter, ValueFilter, value_filter

__all__ = [
    "ConditionFilter",
    "DefaultFilter",
    "Facet",
    "HubChangeList",
    "HubModelAdmin",
    "RawEventAdmin",
    "SinceFilter",
    "ValueFilter",
    "cells",
    "needs",
    "needs_to_change",
    "next_page",
    "value_filter",
]
