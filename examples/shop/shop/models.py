from django.db import models


class Product(models.Model):
    name = models.CharField(max_length=80)
    stock = models.PositiveIntegerField()

    def __str__(self) -> str:
        return str(self.name)


class Report(models.Model):
    made_at = models.DateTimeField(auto_now_add=True)
    orders_placed = models.PositiveIntegerField()
    pieces_sold = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"Report {self.pk}: {self.orders_placed} orders, {self.pieces_sold} pieces"


class Order(models.Model):
    product = models.ForeignKey(Product, models.PROTECT)
    quantity = models.PositiveIntegerField()
    placed_at = models.DateTimeField(auto_now_add=True)
    # The report that it is in, once there is one.
    report = models.ForeignKey(Report, models.SET_NULL, null=True, editable=False)

    def __str__(self) -> str:
        return f"Order {self.pk}: {self.quantity} of {self.product}"
