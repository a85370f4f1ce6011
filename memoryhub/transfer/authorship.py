"""Who wrote an entry, in which session and on which branch, and the code that it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memories.events import filled
from memories.models import Amendment, AmendmentKind, CodeAnchor
from memories.validity.models import Provenance
from memoryhub.core import log
from memoryhub.core.log.read import as_parameter
from memoryhub.core.stores.dialect import IDS, TEXTS
from memoryhub.core.text import first_line, flat, one_line, shortened
from sessions_app.models import Session

_MAX_PURPOSE = 120
_MAX_FIELD = 300
_MAX_PLACES = 20
_SHORT_SHA = 12


@dataclass(frozen=True, slots=True)
class Authorship:
    # The client or the person
    author: str = ""
    session_id: str = ""
    # What the session is for
    purpose: str = ""
    branch: str = ""
    commit: str = ""
    # Parts of the code: ``src/auth.py:10-24`` or ``src/auth.py#login``
    code: Sequence[str] = field(default_factory=list)
    # Entries that this one seems to amend or contradict: numbers in the store, paths in a folder
    amends: Sequence[int | str] = field(default_factory=list)
    contradicts: Sequence[int | str] = field(default_factory=list)

    def matter(self, name_of: Callable[[int], str | None]) -> dict[str, Any]:
        """Return the value for the front matter of a file; ``name_of`` returns the path of an entry's file."""
        return filled(
            author=self.author,
            session=self.purpose or self.session_id,
            branch=self.branch,
            commit=self.commit[:_SHORT_SHA],
            code=list(self.code),
            amends=[name for entity_id in self.amends if (name := name_of(int(entity_id)))],
            contradicts=[name for entity_id in self.contradicts if (name := name_of(int(entity_id)))],
        )

    @classmethod
    def of_matter(cls, value: object) -> Authorship:
        """Return what the front matter of a file has, which can be of any form."""
        fields: Mapping[str, Any] = value if isinstance(value, dict) else {}
        return cls(
            author=_text(fields.get("author")),
            purpose=_text(fields.get("session")),
            branch=_text(fields.get("branch")),
            commit=_text(fields.get("commit")),
            code=_texts(fields.get("code")),
            amends=_texts(fields.get("amends")),
            contradicts=_texts(fields.get("contradicts")),
        )


def _text(value: object) -> str:
    return shortened(flat(value), _MAX_FIELD) if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [text for item in value[:_MAX_PLACES] if (text := _text(item))] if isinstance(value, list) else []


def authorships(events: Mapping[int, int]) -> dict[int, Authorship]:
    """Map entries of the current store to their authorship.

    Args:
        events: ids of entries, with the position of the event that wrote the text.
    """
    headers = log.events().at(events.values()).values_list("position", "actor", "session_id")
    by_position = {position: (actor, session_id) for position, actor, session_id in headers}
    purposes = _purposes({session_id for _, session_id in by_position.values()})
    rows = Provenance.objects.filter(id__in=as_parameter(IDS, events)).values_list("id", "branch", "commit")
    places = {entity_id: (branch, commit) for entity_id, branch, commit in rows}
    code = _code_of(events)
    amended = _amended(events)
    by_entry: dict[int, Authorship] = {}
    for entity_id, position in events.items():
        actor, session_id = by_position.get(position, ("", ""))
        branch, commit = places.get(entity_id, ("", ""))
        by_entry[entity_id] = Authorship(
            author=actor,
            session_id=session_id,
            purpose=purposes.get(session_id, ""),
            branch=branch,
            commit=commit,
            code=code.get(entity_id, []),
            amends=amended.get((entity_id, AmendmentKind.AMENDS), []),
            contradicts=amended.get((entity_id, AmendmentKind.CONTRADICTS), []),
        )
    return by_entry


def _purposes(session_ids: set[str]) -> dict[str, str]:
    sessions = Session.objects.filter(session_id__in=as_parameter(TEXTS, session_ids - {""}))
    texts = dict(sessions.values_list("session_id", "purpose"))
    return {session_id: one_line(first_line(purpose), _MAX_PURPOSE) for session_id, purpose in texts.items()}


def _code_of(ids: Iterable[int]) -> dict[int, list[str]]:
    code: dict[int, list[str]] = {}
    anchors = CodeAnchor.objects.filter(entity_id__in=as_parameter(IDS, ids)).order_by("entity_id", "number")
    for anchor in anchors:
        place = anchor.path
        if anchor.symbol:
            place += f"#{anchor.symbol}"
        elif anchor.first:
            place += f":{anchor.first}-{anchor.last}"
        code.setdefault(anchor.entity_id, []).append(place)
    return {entity_id: list(dict.fromkeys(places))[:_MAX_PLACES] for entity_id, places in code.items()}


# Those that a person dismissed are left out
def _amended(ids: Iterable[int]) -> dict[tuple[int, str], list[int]]:
    amended: dict[tuple[int, str], list[int]] = {}
    amendments = Amendment.objects.filter(newer_id__in=as_parameter(IDS, ids)).exclude(is_accepted=False)
    for newer_id, kind, older_id in amendments.order_by("id").values_list("newer_id", "kind", "older_id"):
        amended.setdefault((newer_id, kind), []).append(older_id)
    return amended
