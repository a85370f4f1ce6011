from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('memories', '0008_review'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(condition=models.Q(('resource_links', []), _negated=True), fields=['id'], name='memory_links'),
        ),
    ]
