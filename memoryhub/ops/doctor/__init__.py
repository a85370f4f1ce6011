"""Check a hub: each finding is a problem and its repair."""

from memoryhub.ops.doctor.finding import Finding
from memoryhub.ops.doctor.service import Report, examine, examine_hub, report_unusable
from memoryhub.ops.doctor.store import Examination, examine_store

__all__ = ["Examination", "Finding", "Report", "examine", "examine_hub", "examine_store", "report_unusable"]
