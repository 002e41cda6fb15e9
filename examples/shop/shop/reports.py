"""The nightly report: every host starts it, one makes it."""

from django.db import transaction
from django.db.models import Sum

from dblock.contrib.django import locks

from .models import Order, Report


# `at_least` is for hosts that start it on either side of midnight, which are two days.
@locks.cron("nightly-report", once_per="day", at_least=300)
def nightly() -> Report:
    """Make the report of the orders that are in none yet; None when another has, or is at it."""
    # Who was held up for so long that the lease has gone to another host cannot commit.
    with transaction.atomic(), nightly.lease.guard():
        report = Report.objects.create(orders_placed=0, pieces_sold=0)
        orders = Order.objects.filter(report=None).update(report=report)
        sold = Order.objects.filter(report=report).aggregate(pieces=Sum("quantity", default=0))
        report.orders_placed, report.pieces_sold = orders, sold["pieces"]
        report.save()
        return report
