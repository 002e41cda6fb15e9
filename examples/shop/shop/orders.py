"""Orders: never more than there is."""

from django.db import transaction

from dblock.contrib.django import locks

from .models import Order, Product


class SoldOut(Exception):
    """There are not as many."""


def place(product_id: int, quantity: int) -> Order:
    """Take a quantity off the shelf.

    Raises SoldOut, and NotAcquired while the product is being counted (see the README).
    """
    # The row lock comes first, so what is read after it is the newest; it ends with the commit.
    with transaction.atomic(), locks.row(f"product:{product_id}", wait=2):
        product = Product.objects.get(pk=product_id)
        if product.stock < quantity:
            raise SoldOut(f"Only {product.stock} of {product} left.")
        product.stock -= quantity
        product.save(update_fields=["stock"])
        return Order.objects.create(product=product, quantity=quantity)
