from decisions.services.graph import link_decisions, mark_decision, unlink_decisions
from decisions.services.record import add_evidence, record_decision, supersede_decision

__all__ = [
    "add_evidence",
    "link_decisions",
    "mark_decision",
    "record_decision",
    "supersede_decision",
    "unlink_decisions",
]
