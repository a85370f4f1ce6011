import memoryhub.core.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('sessions_app', '0001_initial'), ('sessions_app', '0002_turns_and_iterations'), ('sessions_app', '0003_profile')]

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Commit',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('sha', models.CharField(max_length=64, unique=True)),
                ('message', models.TextField()),
                ('author', models.CharField(max_length=300)),
                ('committed_at', models.DateTimeField()),
                ('insertions', models.PositiveIntegerField()),
                ('deletions', models.PositiveIntegerField()),
                ('files', models.JSONField(default=list)),
                ('iteration_id', models.BigIntegerField(help_text='The iteration that was active when it was recorded', null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['committed_at'], name='commit_time')],
            },
        ),
        migrations.CreateModel(
            name='Session',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('session_id', models.CharField(max_length=200, unique=True, verbose_name='name')),
                ('purpose', models.TextField(blank=True)),
                ('mode', models.CharField(choices=[('working', 'Working period'), ('scratch', 'Scratch space')], max_length=16)),
                ('status', models.CharField(choices=[('active', 'Active'), ('paused', 'Paused'), ('completed', 'Completed'), ('discarded', 'Discarded')], max_length=16)),
                ('directory', models.TextField(blank=True)),
                ('agent', models.CharField(blank=True, max_length=200)),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('summary', models.TextField(blank=True)),
            ],
            options={
                'indexes': [models.Index(fields=['status', 'started_at'], name='session_status')],
            },
        ),
        migrations.CreateModel(
            name='Setting',
            fields=[
                ('name', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('value', models.JSONField()),
            ],
            options={
                'abstract': False,
                'base_manager_name': 'objects',
            },
        ),
        migrations.CreateModel(
            name='Iteration',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('command', models.CharField(max_length=64)),
                ('description', models.TextField(blank=True)),
                ('status', models.CharField(choices=[('active', 'Active'), ('completed', 'Completed'), ('abandoned', 'Abandoned')], max_length=16)),
                ('phase', models.CharField(blank=True, max_length=64)),
                ('phases_completed', models.JSONField(default=list)),
                ('artifacts', models.JSONField(default=list)),
                ('session_id', models.CharField(blank=True, max_length=200, verbose_name='session')),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('end_position', models.BigIntegerField(null=True)),
                ('outcome', models.TextField(blank=True)),
            ],
            options={
                'indexes': [models.Index(fields=['status'], name='iteration_status')],
            },
        ),
        migrations.CreateModel(
            name='Turn',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('session_id', models.CharField(max_length=200, verbose_name='session')),
                ('turn_id', models.CharField(max_length=200, verbose_name='name')),
                ('status', models.CharField(choices=[('open', 'Open'), ('closed', 'Closed'), ('incomplete', 'Incomplete')], max_length=16)),
                ('automatic', models.BooleanField(help_text='Opened by the hub itself; it has no token')),
                ('ack_token_hash', models.CharField(blank=True, max_length=64)),
                ('ack_seconds', models.PositiveIntegerField(help_text='For so long after its last event it stays open')),
                ('expires_at', models.DateTimeField()),
                ('began_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('actor', models.CharField(max_length=200)),
                ('event_count', models.PositiveIntegerField(verbose_name='events')),
                ('summary', models.TextField(blank=True)),
            ],
            options={
                'indexes': [models.Index(fields=['status', 'expires_at'], name='turn_status'), models.Index(fields=['ack_token_hash'], name='turn_token')],
                'constraints': [models.UniqueConstraint(fields=('session_id', 'turn_id'), name='turn_name')],
            },
        ),
        migrations.CreateModel(
            name='Profile',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('name', models.CharField(blank=True, max_length=200)),
                ('description', models.TextField(blank=True)),
                ('root_path', models.TextField(blank=True)),
                ('org', models.CharField(help_text='The one that the project belongs to', max_length=64, null=True, verbose_name='organisation')),
                ('metadata', models.JSONField(default=dict)),
                ('tags', models.JSONField(default=list)),
                ('updated_at', models.DateTimeField()),
            ],
            options={
                'abstract': False,
                'base_manager_name': 'objects',
            },
        ),
    ]
