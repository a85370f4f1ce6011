from django.db import migrations, models


class Migration(migrations.Migration):
    """Memories of the kind failure, and an index of sections of documents by file."""

    dependencies = [
        ('memories', '0011_updated_when_written'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(condition=models.Q(('type', 'reference')), fields=['source'], name='memory_reference'),
        ),
        migrations.CreateModel(
            name='Failure',
            fields=[
            ],
            options={
                'proxy': True,
                'indexes': [],
                'constraints': [],
            },
            bases=('memories.memory',),
        ),
        migrations.AlterField(
            model_name='memory',
            name='kind',
            field=models.CharField(choices=[('observation', 'Observation'), ('guideline', 'Guideline'), ('tool', 'Tool'), ('knowledge', 'Knowledge'), ('failure', 'Failure')], max_length=16),
        ),
    ]
