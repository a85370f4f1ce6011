import memoryhub.core.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('core', '0001_initial'), ('core', '0002_quarantine')]

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='ProjectionOffset',
            fields=[
                ('projector', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('position', memoryhub.core.fields.PositionField()),
            ],
            options={
                'db_table': 'projection_offsets',
            },
        ),
        migrations.CreateModel(
            name='RawEvent',
            fields=[
                ('position', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('event_id', models.CharField(max_length=36, unique=True)),
                ('project_id', models.CharField(max_length=64)),
                ('session_id', models.CharField(blank=True, max_length=200)),
                ('turn_id', models.CharField(blank=True, max_length=200)),
                ('stream_id', models.CharField(max_length=200)),
                ('stream_seq', models.BigIntegerField()),
                ('event_type', models.CharField(max_length=64)),
                ('event_version', models.PositiveSmallIntegerField()),
                ('occurred_at', models.CharField(help_text='UTC, ISO 8601 with milliseconds', max_length=24)),
                ('actor', models.CharField(max_length=200)),
                ('source', models.CharField(max_length=32)),
                ('payload_json', models.TextField(help_text='Canonical JSON; NULL once erased', null=True)),
                ('salt', models.CharField(help_text='Hexadecimal; goes with the payload', max_length=32, null=True)),
                ('payload_digest', models.CharField(max_length=64)),
                ('chain_digest', models.CharField(max_length=64)),
                ('idempotency_key', models.CharField(max_length=200, null=True, unique=True)),
                ('trace_id', models.CharField(blank=True, max_length=64)),
            ],
            options={
                'verbose_name': 'event',
                'db_table': 'raw_events',
                'indexes': [models.Index(fields=['event_type', 'position'], name='raw_events_type'), models.Index(fields=['session_id', 'position'], name='raw_events_session'), models.Index(fields=['occurred_at'], name='raw_events_time')],
                'constraints': [models.UniqueConstraint(fields=('stream_id', 'stream_seq'), name='raw_events_stream')],
            },
        ),
        migrations.CreateModel(
            name='Quarantine',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('placed_by', models.BigIntegerField(help_text='The position of the event that set it aside')),
            ],
            options={
                'db_table': 'quarantine',
            },
        ),
    ]
