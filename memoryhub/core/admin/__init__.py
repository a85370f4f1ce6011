from memoryhub.core.admin import cells
from memoryhub.core.admin.base import HubModelAdmin, needs, next_page
from memoryhub.core.admin.events import RawEventAdmin
from memoryhub.core.admin.facets import (
    ConditionFilter,
    DefaultFilter,
    Facet,
    HubChangeList,
    SinceFilter,
    ValueFilter,
    value_filter,
)
