from django.db import migrations


class Migration(migrations.Migration):
    """The first version of an imported memory was updated when the other tool wrote it."""

    dependencies = [
        ('memories', '0001_squashed'),
    ]

    operations = [
        migrations.RunSQL(
            'UPDATE memories_memory SET updated_at = created_at WHERE version = 1 AND updated_at <> created_at',
            migrations.RunSQL.noop,
        ),
    ]
