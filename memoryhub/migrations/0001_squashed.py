from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('memoryhub', '0001_initial'), ('memoryhub', '0002_job_runs'), ('memoryhub', '0003_access'), ('memoryhub', '0004_access_changes'), ('memoryhub', '0005_saved_views'), ('memoryhub', '0006_members')]

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='SignInLink',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('token_hash', models.CharField(max_length=64, unique=True)),
                ('username', models.CharField(max_length=150)),
                ('expires_at', models.DateTimeField()),
                ('used_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='StoreCheck',
            fields=[
                ('store', models.CharField(max_length=128, primary_key=True, serialize=False)),
                ('checked_at', models.DateTimeField()),
                ('ok', models.BooleanField()),
                ('events', models.BigIntegerField()),
                ('finding', models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name='JobRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('job', models.CharField(max_length=64)),
                ('store', models.CharField(blank=True, help_text="The store's alias; empty: the hub itself", max_length=128)),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField()),
                ('result', models.CharField(choices=[('ok', 'Ok'), ('failed', 'Failed'), ('interrupted', 'Interrupted')], max_length=16)),
                ('done', models.BigIntegerField(default=0)),
                ('total', models.BigIntegerField(default=0, help_text='0 where nobody knows how much there is')),
                ('message', models.TextField(blank=True)),
                ('pid', models.BigIntegerField()),
                ('asked_by', models.CharField(help_text='schedule, or who asked for it', max_length=150)),
                ('idle', models.BooleanField(default=False, help_text="Found nothing to do; the next such run takes its row's place")),
            ],
            options={
                'indexes': [models.Index(fields=['job', 'store', '-started_at'], name='job_run_last')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('idle', True)), fields=('job', 'store'), name='job_run_one_idle')],
            },
        ),
        migrations.CreateModel(
            name='HubAccess',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ],
            options={
                'permissions': [('view_hub', 'Can see every page'), ('write_hub', 'Can write, settle and delete softly'), ('review_hub', 'Can accept and reject what is proposed'), ('govern_hub', 'Can redact, erase, roll back, and change policies'), ('administer_hub', 'Can manage people, tokens and jobs')],
                'managed': False,
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='AgentToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('prefix', models.CharField(max_length=16, unique=True)),
                ('token_hash', models.CharField(max_length=64)),
                ('projects', models.JSONField(null=True)),
                ('verbs', models.JSONField()),
                ('created_at', models.DateTimeField()),
                ('created_by', models.CharField(max_length=150)),
                ('expires_at', models.DateTimeField()),
                ('last_used_at', models.DateTimeField(null=True)),
                ('last_used_from', models.CharField(blank=True, max_length=64)),
                ('revoked_at', models.DateTimeField(null=True)),
                ('revoked_by', models.CharField(blank=True, max_length=150)),
                ('orgs', models.JSONField(default=list)),
                ('person', models.CharField(blank=True, max_length=150)),
                ('name', models.CharField(max_length=150, unique=True)),
            ],
        ),
        migrations.CreateModel(
            name='AccessChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('by', models.CharField(max_length=150)),
                ('door', models.CharField(max_length=16)),
                ('subject', models.CharField(choices=[('person', 'Person'), ('token', 'Token'), ('job', 'Job'), ('member', 'Member')], max_length=16)),
                ('name', models.CharField(max_length=150)),
                ('what', models.CharField(max_length=500)),
            ],
            options={
                'indexes': [models.Index(fields=['subject', '-id'], name='access_change_of')],
            },
        ),
        migrations.CreateModel(
            name='SavedView',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('username', models.CharField(max_length=150)),
                ('store', models.CharField(help_text="The store's alias", max_length=128)),
                ('page', models.CharField(help_text="Path of the list below the store's overview", max_length=100)),
                ('name', models.CharField(max_length=60)),
                ('query', models.TextField(help_text="The address's query, without the page number")),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('username', 'store', 'page', 'name'), name='saved_view_name')],
            },
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('username', models.CharField(max_length=150)),
                ('place', models.CharField(help_text='project:<id> or org:<id>', max_length=128)),
                ('role', models.CharField(max_length=16)),
                ('given_at', models.DateTimeField()),
                ('given_by', models.CharField(max_length=150)),
            ],
            options={
                'indexes': [models.Index(fields=['place'], name='membership_of_place')],
                'constraints': [models.UniqueConstraint(fields=('username', 'place'), name='membership_once')],
            },
        ),
    ]
