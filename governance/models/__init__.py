"""Read models of what was done about what is kept. Projectors alone write them."""

from governance.models.redaction import Redaction
from governance.models.retention import Hold, RetentionRun
from governance.models.staleness import Affirmation
from governance.models.taint import Rollback

__all__ = ["Affirmation", "Hold", "Redaction", "RetentionRun", "Rollback"]
