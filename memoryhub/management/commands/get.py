from __future__ import annotations

from collections.abc import Iterator

from memoryhub.management.commands import show
from memoryhub.management.terminal import Line
from memoryhub.registry.entity_texts import EntityText


class Command(show.Command):
    help = "Print memories, decisions and whatever else has an id as agents get it; `show` lays them out for a person."
    has_relations = False

    def lines(self, entities: list[EntityText], where: str) -> Iterator[Line]:
        yield "\n\n".join(entity.text for entity in entities)
