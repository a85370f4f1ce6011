"""The hub at its three doors: a search and a pack over MCP, and what a client's prompt hook is given."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from django.db import connections

from benchmarks.quality.embedding import embed
from benchmarks.quality.questions import Question, QuestionSet
from benchmarks.quality.recall import DEFAULT
from benchmarks.quality.stores import write_collection
from benchmarks.sets.model import Collection
from benchmarks.yardstick.systems import LIMIT, SEARCH, Answer, FilledStore, answer_from
from memories import scopes
from memories.pack.recall import recall_body
from memories.pack.sections import GatherRequest
from memories.pack.service import pack_text
from memories.search.parsed_query import parse
from memoryhub.client.setup.entries import command_words
from memoryhub.core import clock
from memoryhub.core.errors import Unavailable
from memoryhub.core.stores.store import StoreId, use_store
from memoryhub.management.bench import BenchClient, hub_environment

PACK, RECALL = "pack", "recall"
_NEW_SESSION = "yardstick-recall"
_REFERENCE = re.compile(r"^(?:- )?#(\d+)\b", re.MULTILINE)
_READY_SECONDS, _POLL_SECONDS = 60.0, 0.05


class HubStores:
    """Chats are written as sessions, everything else as memories, in the hub's temporary home."""

    def __init__(self, home: Path, *, meaning: bool) -> None:
        self.name = "Memory Hub" if meaning else "Memory Hub, words alone"
        self._home = home
        self._meaning = meaning

    @contextmanager
    def filled(self, collection: Collection) -> Iterator[FilledStore]:
        suffix = "meaning" if self._meaning else "words"
        written = write_collection(replace(collection, name=f"{collection.name}-{suffix}"))
        if self._meaning:
            embed(QuestionSet("", "", 0, [Question(written.store, "", frozenset(), "", 0)]))
        connections.close_all()
        texts = {
            str(written.ids[document.key]): (document.key, f"{document.title} {document.text}")
            for document in reversed(collection.documents)
        }
        command = [*command_words(), "mcp", "--project", written.store.name]
        environment = hub_environment(self._home, meaning=self._meaning)
        with BenchClient(command, self._home, environment) as client:
            client.open()
            if self._meaning:
                _wait_for_meaning(client, collection.queries[0].text)

            def search(query: str) -> Answer:
                answer = client.call("memory_search", {"query": query, "limit": LIMIT})
                return answer_from(answer, _REFERENCE, texts)

            def pack(query: str) -> Answer:
                return answer_from(client.call("memory_context", {"query": query}), _REFERENCE, texts)

            def recall(query: str) -> Answer:
                return answer_from(_recalled(written.store, query), _REFERENCE, texts)

            yield FilledStore({SEARCH: search, PACK: pack, RECALL: recall})


# As the hook of a new session is answered, which was not given the packs before
def _recalled(store: StoreId, prompt: str) -> str:
    with use_store(store):
        request = GatherRequest(scopes.levels(), clock.now(), parse(prompt), session_id=_NEW_SESSION)
        body = recall_body(request, DEFAULT)
        return pack_text(0, body, store.name) if body.sections else ""


def _wait_for_meaning(client: BenchClient, query: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        answer = json.loads(client.call("memory_search", {"query": query, "limit": 1, "format": "json"}))
        if answer["meta"]["mode"] == "hybrid":
            return
        time.sleep(_POLL_SECONDS)
    raise Unavailable("the vector index was not ready in time")
