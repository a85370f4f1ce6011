"""The admin's pages of memories."""

from memories.admin import conflict, kinds, memory, pack_page, search_page, tag
