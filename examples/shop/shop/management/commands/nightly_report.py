from typing import Any

from django.core.management.base import BaseCommand

from ... import reports


class Command(BaseCommand):
    help = "Make the nightly report, on one host of all that start this."

    def handle(self, *args: Any, **options: Any) -> None:
        report = reports.nightly()
        self.stdout.write(str(report or "Nothing to do: it is made on another host, or was today."))
