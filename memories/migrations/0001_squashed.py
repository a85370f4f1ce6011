import django.db.models.deletion
import memoryhub.core.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('memories', '0001_initial'), ('memories', '0002_ephemeral'), ('memories', '0003_one_model'), ('memories', '0004_deleted_index'), ('memories', '0005_context_packs'), ('memories', '0006_vectors'), ('memories', '0007_uses'), ('memories', '0008_review'), ('memories', '0009_links'), ('memories', '0010_facets_index')]

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Memory',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('observation', 'Observation'), ('guideline', 'Guideline'), ('tool', 'Tool'), ('knowledge', 'Knowledge')], max_length=16)),
                ('type', models.CharField(max_length=64)),
                ('title', models.CharField(max_length=300)),
                ('content', models.TextField()),
                ('topic_key', models.CharField(max_length=300, null=True)),
                ('content_hash', models.CharField(max_length=64)),
                ('author', models.CharField(blank=True, max_length=200)),
                ('source', models.TextField(blank=True)),
                ('tags', models.JSONField(default=list)),
                ('resource_links', models.JSONField(default=list)),
                ('session_id', models.CharField(blank=True, max_length=200, verbose_name='session')),
                ('version', models.PositiveIntegerField()),
                ('seen_count', models.PositiveIntegerField(verbose_name='seen')),
                ('created_at', models.DateTimeField(verbose_name='created')),
                ('updated_at', models.DateTimeField(verbose_name='updated')),
                ('deleted_at', models.DateTimeField(null=True, verbose_name='deleted')),
                ('ephemeral', models.BooleanField(help_text='Of a scratch session that has not ended yet')),
                ('attributes', models.JSONField(default=dict)),
                ('confidence', models.FloatField(help_text='Of knowledge, 0 to 1', null=True)),
                ('priority', models.PositiveSmallIntegerField(help_text='Of a guideline, 0 to 100', null=True)),
                ('scope', models.CharField(choices=[('session', 'Session'), ('project', 'Project'), ('org', 'Organisation'), ('global', 'Global')], default='project', max_length=16)),
                ('valid_until', models.DateTimeField(help_text='Of knowledge', null=True)),
                ('accepted_version', models.PositiveIntegerField(help_text='The one that holds while a later one waits', null=True)),
                ('review', models.CharField(choices=[('accepted', 'Accepted'), ('proposed', 'Proposed'), ('rejected', 'Rejected')], default='accepted', max_length=16)),
                ('review_reason', models.TextField(blank=True, default='', help_text='Why it waits for a person, or was rejected')),
            ],
            options={
                'verbose_name_plural': 'memories',
                'indexes': [models.Index(fields=['content_hash'], name='memory_content_hash'), models.Index(fields=['title'], name='memory_title'), models.Index(fields=['updated_at', 'id'], name='memory_updated'), models.Index(condition=models.Q(('scope', 'session')), fields=['session_id'], name='memory_of_session'), models.Index(condition=models.Q(('valid_until__isnull', False)), fields=['valid_until'], name='memory_expiry'), models.Index(condition=models.Q(('deleted_at__isnull', False)), fields=['deleted_at'], name='memory_deleted'), models.Index(condition=models.Q(('review', 'accepted'), _negated=True), fields=['review', 'updated_at', 'id'], name='memory_review'), models.Index(condition=models.Q(('resource_links', []), _negated=True), fields=['id'], name='memory_links'), models.Index(fields=['kind', 'updated_at', 'type', 'review', 'deleted_at', 'scope', 'author', 'session_id'], name='memory_facets')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('deleted_at__isnull', True), models.Q(('scope', 'session'), _negated=True)), fields=('topic_key',), name='memory_topic_key'), models.UniqueConstraint(condition=models.Q(('deleted_at__isnull', True), ('scope', 'session')), fields=('session_id', 'topic_key'), name='memory_session_topic_key')],
            },
        ),
        migrations.CreateModel(
            name='MemoryTag',
            fields=[
                ('pk', models.CompositePrimaryKey('tag', 'memory_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('tag', models.CharField(max_length=64)),
                ('memory', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='memories.memory')),
            ],
            options={
                'abstract': False,
                'base_manager_name': 'objects',
            },
        ),
        migrations.CreateModel(
            name='SearchDocument',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('source', models.CharField(max_length=16)),
                ('kind', models.CharField(blank=True, max_length=16)),
                ('title', models.CharField(max_length=300)),
                ('session_id', models.CharField(blank=True, max_length=200)),
                ('created_at', models.DateTimeField()),
                ('type', models.CharField(blank=True, max_length=64)),
            ],
            options={
                'indexes': [models.Index(fields=['source', 'created_at'], name='search_document_source')],
            },
        ),
        migrations.CreateModel(
            name='MemoryVersion',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('version', models.PositiveIntegerField()),
                ('base_version', models.PositiveIntegerField(null=True)),
                ('reason', models.TextField(blank=True)),
                ('actor', models.CharField(max_length=200)),
                ('source', models.CharField(max_length=32, verbose_name='door')),
                ('session_id', models.CharField(blank=True, max_length=200, verbose_name='session')),
                ('created_at', models.DateTimeField()),
                ('memory', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='versions', to='memories.memory')),
                ('conflicts_with', models.PositiveIntegerField(help_text='The version that its writer had not seen', null=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('memory', 'version'), name='memory_version_number')],
            },
        ),
        migrations.CreateModel(
            name='Conflict',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('version_a', models.PositiveIntegerField()),
                ('version_b', models.PositiveIntegerField()),
                ('detected_at', models.DateTimeField(verbose_name='detected')),
                ('resolution', models.CharField(blank=True, choices=[('keep_a', 'Keep the earlier version'), ('keep_b', 'Keep the later version'), ('merge', 'Merge them'), ('both', 'Keep both, as two memories')], max_length=16)),
                ('reason', models.TextField(blank=True)),
                ('resolved_by', models.CharField(blank=True, max_length=200)),
                ('resolved_at', models.DateTimeField(null=True, verbose_name='resolved')),
                ('resolved_version', models.PositiveIntegerField(help_text='The version that stands since', null=True)),
                ('split_id', models.BigIntegerField(help_text='The memory that version a became, where both were kept', null=True)),
                ('memory', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='conflicts', to='memories.memory')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('resolved_at__isnull', True)), fields=['memory'], name='conflict_open')],
            },
        ),
        migrations.CreateModel(
            name='Relation',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('relation', models.CharField(choices=[('applies_to', 'Applies to'), ('depends_on', 'Depends on'), ('conflicts_with', 'Conflicts with'), ('related_to', 'Related to'), ('supersedes', 'Supersedes'), ('derived_from', 'Derived from')], max_length=16)),
                ('source_type', models.CharField(choices=[('memory', 'Memory'), ('decision', 'Decision'), ('commit', 'Commit'), ('session', 'Session'), ('project', 'Project')], max_length=16)),
                ('source_id', models.BigIntegerField()),
                ('target_type', models.CharField(choices=[('memory', 'Memory'), ('decision', 'Decision'), ('commit', 'Commit'), ('session', 'Session'), ('project', 'Project')], max_length=16)),
                ('target_id', models.BigIntegerField()),
                ('actor', models.CharField(max_length=200, verbose_name='made by')),
                ('session_id', models.CharField(blank=True, max_length=200, verbose_name='session')),
                ('created_at', models.DateTimeField(verbose_name='created')),
            ],
            options={
                'indexes': [models.Index(fields=['target_id', 'relation'], name='relation_target')],
                'constraints': [models.UniqueConstraint(fields=('source_id', 'target_id', 'relation'), name='relation_once')],
            },
        ),
        migrations.CreateModel(
            name='Tag',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64, unique=True)),
                ('category', models.CharField(max_length=64)),
                ('description', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(verbose_name='created')),
            ],
            options={
                'abstract': False,
                'base_manager_name': 'objects',
            },
        ),
        migrations.CreateModel(
            name='ContextPack',
            fields=[
                ('id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('session_id', models.CharField(blank=True, max_length=200, verbose_name='session')),
                ('query', models.TextField(blank=True)),
                ('max_tokens', models.PositiveIntegerField()),
                ('tokens', models.PositiveIntegerField()),
                ('digest', models.CharField(help_text='SHA-256 of what it said', max_length=64)),
                ('marks', models.JSONField(default=dict)),
                ('positions', models.JSONField(default=list)),
                ('created_at', models.DateTimeField(verbose_name='sent')),
            ],
            options={
                'indexes': [models.Index(fields=['session_id', 'id'], name='context_pack_session')],
            },
        ),
        migrations.CreateModel(
            name='EmbeddingModel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=300)),
                ('version', models.CharField(max_length=64)),
                ('dimensions', models.PositiveIntegerField()),
                ('revision', models.PositiveBigIntegerField(default=0, help_text='Rises whenever its vectors change')),
                ('complete', models.BooleanField(default=False, help_text='Whether it has been through the whole log once')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('name', 'version'), name='embedding_model_name')],
            },
        ),
        migrations.CreateModel(
            name='Vector',
            fields=[
                ('pk', models.CompositePrimaryKey('document_id', 'model_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('document_id', memoryhub.core.fields.PositionField()),
                ('model_id', models.IntegerField()),
                ('content_hash', models.BinaryField(max_length=16)),
                ('scale', models.FloatField()),
                ('numbers', models.BinaryField()),
            ],
            options={
                'indexes': [models.Index(fields=['content_hash'], name='vector_content')],
            },
        ),
        migrations.CreateModel(
            name='MemoryUse',
            fields=[
                ('memory_id', memoryhub.core.fields.PositionField(primary_key=True, serialize=False)),
                ('given', models.PositiveIntegerField(default=0, help_text='Told by a context pack')),
                ('found', models.PositiveIntegerField(default=0, help_text='Shown by a search')),
                ('fetched', models.PositiveIntegerField(default=0, help_text='Asked for by id or name')),
                ('cited', models.PositiveIntegerField(default=0, help_text='Things that name it')),
                ('updated', models.PositiveIntegerField(default=0, help_text='New versions')),
                ('last_given_at', models.DateTimeField(null=True)),
                ('last_read_at', models.DateTimeField(help_text='Found, fetched or updated', null=True)),
                ('last_cited_at', models.DateTimeField(null=True)),
            ],
            options={
                'abstract': False,
                'base_manager_name': 'objects',
            },
        ),
        migrations.CreateModel(
            name='MemoryCitation',
            fields=[
                ('pk', models.CompositePrimaryKey('memory_id', 'stream_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('memory_id', memoryhub.core.fields.PositionField()),
                ('stream_id', models.CharField(max_length=200, verbose_name='what names it')),
                ('cited_at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['stream_id'], name='memory_citation_stream')],
            },
        ),
        migrations.CreateModel(
            name='Guideline',
            fields=[
            ],
            options={
                'proxy': True,
            },
            bases=('memories.memory',),
        ),
        migrations.CreateModel(
            name='Knowledge',
            fields=[
            ],
            options={
                'verbose_name_plural': 'knowledge',
                'proxy': True,
            },
            bases=('memories.memory',),
        ),
        migrations.CreateModel(
            name='Observation',
            fields=[
            ],
            options={
                'proxy': True,
            },
            bases=('memories.memory',),
        ),
        migrations.CreateModel(
            name='Tool',
            fields=[
            ],
            options={
                'proxy': True,
            },
            bases=('memories.memory',),
        ),
    ]
