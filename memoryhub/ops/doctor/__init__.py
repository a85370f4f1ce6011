"""What is wrong with a hub, and how to mend it: each finding is a sentence and a remedy."""

from memoryhub.ops.doctor.finding import Finding
from memoryhub.ops.doctor.hub import examine_hub
from memoryhub.ops.doctor.store import Examination, examine_store

__all__ = ["Examination", "Finding", "examine_hub", "examine_store"]
