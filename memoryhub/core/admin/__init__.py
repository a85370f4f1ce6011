from memoryhub.core.admin import cells
from memoryhub.core.admin.base import HubModelAdmin, needs, next_page, page_of_entity
from memoryhub.core.admin.events import RawEventAdmin
from memoryhub.core.admin.facets import (
    ConditionFilter,
    DefaultFilter,
    Facet,
    HubChangeList,
    ValueFilter,
    since_filter,
    value_filter,
)
