"""The admin's list of leases: who holds what, for how long; and the way to take one from them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import BooleanField, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from django.utils.timesince import timesince

from ...printable import printable
from .alias import alias
from .handles import made
from .models import Lock


@admin.register(Lock)
class LockAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not generic when it runs
    list_display = ("lock_name", "owner", "age", "state", "fence")
    search_fields = ("owner",)
    ordering = ("lock_name",)
    actions = ("force_release",)
    fields = ("lock_name", "owner", "age", "state", "acquired_at", "expires_at", "fence", "waiters")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Lock]:
        leased = RawSQL("token IS NOT NULL", (), output_field=BooleanField())
        return Lock.objects.using(alias()).filter(leased)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_force_release_permission(self, request: HttpRequest) -> bool:
        user: Any = request.user
        return bool(user.has_perm("dblock.force_release_lock"))

    @admin.display(description="held for", ordering="acquired_at")
    def age(self, lock: Lock) -> str:
        return "" if lock.acquired_at is None else timesince(lock.acquired_at)

    @admin.display(ordering="expires_at")
    def state(self, lock: Lock) -> str:
        over = lock.expires_at is None or lock.expires_at <= timezone.now()
        return "expired" if over else "held"

    def waiters(self, lock: Lock) -> str:
        lines = [(waiter.describe(),) for waiter in made(alias()).show(lock.lock_name).waiters]
        return format_html_join(mark_safe("<br>"), "{}", lines) or "nobody waits"

    @admin.action(description="Take from their holders", permissions=["force_release"])
    def force_release(self, request: HttpRequest, chosen: QuerySet[Lock]) -> HttpResponse | None:
        locks = made(alias())
        if "confirmed" not in request.POST:
            context = {
                **self.admin_site.each_context(request),
                "title": "Take locks from their holders?",
                "opts": self.model._meta,
                "chosen": chosen,
                "checkbox": ACTION_CHECKBOX_NAME,
            }
            return TemplateResponse(request, "dblock/force_release.html", context)
        # Django's templates begin a message with a capital, which no name is to be hit by.
        for lock in chosen:
            if locks.release(lock.lock_name, force=True):
                messages.success(request, printable(f"Taken: {lock.lock_name}, from {lock.owner}"))
            else:
                messages.warning(request, printable(f"Nobody held {lock.lock_name} any more"))
        return None
