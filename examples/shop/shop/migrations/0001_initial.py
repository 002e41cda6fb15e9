from typing import Any

from django.db import migrations, models
from django.db.models import BigAutoField, DateTimeField, ForeignKey, PositiveIntegerField


def fill_the_shelf(apps: Any, schema_editor: Any) -> None:
    products = apps.get_model("shop", "Product").objects.using(schema_editor.connection.alias)
    for name, stock in (("Teapot", 30), ("Cup", 200)):
        products.create(name=name, stock=stock)


class Migration(migrations.Migration):
    operations = [
        migrations.CreateModel(
            "Product",
            [
                ("id", BigAutoField("ID", auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=80)),
                ("stock", PositiveIntegerField()),
            ],
        ),
        migrations.CreateModel(
            "Report",
            [
                ("id", BigAutoField("ID", auto_created=True, primary_key=True, serialize=False)),
                ("made_at", DateTimeField(auto_now_add=True)),
                ("orders_placed", PositiveIntegerField()),
                ("pieces_sold", PositiveIntegerField()),
            ],
        ),
        migrations.CreateModel(
            "Order",
            [
                ("id", BigAutoField("ID", auto_created=True, primary_key=True, serialize=False)),
                ("quantity", PositiveIntegerField()),
                ("placed_at", DateTimeField(auto_now_add=True)),
                ("product", ForeignKey("shop.Product", models.PROTECT)),
                ("report", ForeignKey("shop.Report", models.SET_NULL, null=True, editable=False)),
            ],
        ),
        migrations.RunPython(fill_the_shelf),
    ]
