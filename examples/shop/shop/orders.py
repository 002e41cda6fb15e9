"""Orders: never more than there is."""

from django.db import transaction

from dblock import NotEnough
from dblock.contrib.django import locks

from .models import Order, Product

stock = locks.counter(Product.stock)


class SoldOut(Exception):
    """There are not as many."""


def place(product_id: int, quantity: int) -> Order:
    """Take a quantity off the shelf.

    Raises SoldOut, and NotAcquired while the product is being counted (see the README).
    """
    # The row lock keeps orders out while somebody counts the product; it ends with the commit.
    with transaction.atomic(), locks.row(f"product:{product_id}", wait=2):
        try:
            stock.take(product_id, quantity)
        except NotEnough as error:
            product = Product.objects.get(pk=product_id)
            raise SoldOut(f"Only {error.available} of {product} left.") from error
        return Order.objects.create(product_id=product_id, quantity=quantity)
