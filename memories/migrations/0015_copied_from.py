from django.db import migrations, models


class Migration(migrations.Migration):
    """What a version was copied from. The column can be null, so that SQLite adds it without a copy of the table."""

    dependencies = [
        ('memories', '0014_checks'),
    ]

    operations = [
        migrations.AddField(
            model_name='memoryversion',
            name='copied_from',
            field=models.CharField(help_text='web, tool or import, if the text is a copy', max_length=8, null=True),
        ),
    ]
