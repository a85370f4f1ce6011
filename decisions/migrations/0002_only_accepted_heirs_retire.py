from django.db import migrations

_HEIRS = (
    "FROM decisions_decisionedge e JOIN decisions_decision h ON h.id = e.from_id "
    "WHERE e.to_id = decisions_decision.id AND e.relation = 'supersedes' AND h.status"
)
_MARKED = " OR ".join(
    f"""payload_json LIKE '%"status":"{status}"%'""" for status in ("proposed", "rejected", "deprecated", "superseded")
)


class Migration(migrations.Migration):
    """
    A decision that was accepted all along is in force again if only proposed or rejected ones supersede it.

    Where its own events set another status, a rebuild of the read models finds the right one.
    """

    dependencies = [
        ('core', '0001_squashed'),
        ('decisions', '0001_initial'),
    ]

    operations = [
        migrations.RunSQL(
            "UPDATE decisions_decision SET status = 'accepted' WHERE status = 'superseded' "
            f"AND EXISTS (SELECT 1 {_HEIRS} IN ('proposed', 'rejected')) "
            f"AND NOT EXISTS (SELECT 1 {_HEIRS} NOT IN ('proposed', 'rejected')) "
            "AND NOT EXISTS (SELECT 1 FROM raw_events WHERE stream_id = 'decision:' || decisions_decision.id "
            f"AND event_type IN ('decision.recorded', 'decision.marked') AND ({_MARKED}))",
            migrations.RunSQL.noop,
        ),
    ]
