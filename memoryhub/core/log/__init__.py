"""The event log: every change in a store is an event appended here (decision 1).

``prepare`` validates and sanitises a payload, ``append`` writes it inside a ``transaction``, ``events`` reads them,
and ``verify`` checks that none was changed.
"""

from memoryhub.core.log.anchor import anchor_problem, anchor_warning, require_anchored
from memoryhub.core.log.append import (
    Draft,
    append,
    before_commit,
    find_by_key,
    guard,
    on_append,
    open_head,
    prepare,
    require_key,
    transaction,
)
from memoryhub.core.log.chain import LOSS_ACCEPTED, Verification, accept_loss, verify
from memoryhub.core.log.erase import (
    PAYLOAD_ERASED,
    PAYLOAD_REDACTED,
    PayloadErased,
    PayloadRedacted,
    erase_events,
    erase_streams,
    redact_payloads,
    stands_alone,
)
from memoryhub.core.log.read import (
    EventQuerySet,
    StoredEvent,
    digest_at,
    event_column,
    event_of,
    events,
    head,
    iterate_columns,
    replay,
)
from memoryhub.core.log.rebuilding import compare, compare_sample, rebuild, table_digests
from memoryhub.core.log.views import forget_views, view_at
