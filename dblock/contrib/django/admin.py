"""The admin's list of leases: who holds what, for how long; and the way to take one from them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.db.models import BooleanField, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from django.utils.timesince import timesince

from ...lock_state import LockState, RunState
from ...printable import moment, printable
from .alias import alias
from .handles import made
from .models import Lock


@admin.register(Lock)
class LockAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not generic when it runs
    list_display = (
        *("lock_name", "owner", "age", "seconds", "state"),
        *("waiting", "last_run", "fence"),
    )
    search_fields = ("owner",)
    search_help_text = "A part of the name or of the holder"
    ordering = ("lock_name",)
    actions = ("force_release",)
    fields = ("lock_name", "owner", "age", "state", "acquired_at", "expires_at", "fence", "waiters")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Lock]:
        leased = RawSQL("token IS NOT NULL", (), output_field=BooleanField())
        return Lock.objects.using(alias()).filter(leased)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Lock], search_term: str
    ) -> tuple[QuerySet[Lock], bool]:
        """Find a part of the name too: on MariaDB that is bytes, in which Django cannot search."""
        found, duplicates = super().get_search_results(request, queryset, search_term)
        sought = search_term.casefold()
        names = queryset.values_list("lock_name", flat=True) if sought else ()
        matching = [name for name in names if sought in name.casefold()]
        return (found | queryset.filter(pk__in=matching) if matching else found), duplicates

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Read what is told of all locks once for the page."""
        page = super().get_changelist_instance(request)
        locks = made(alias())
        states = {state.name: state for state in locks.list()}
        runs = {run.name: run for run in locks.last_runs()}
        shown: Any = list(page.result_list)
        for lock in shown:
            lock.told, lock.run = states.get(lock.lock_name), runs.get(lock.lock_name)
        page.result_list = shown
        return page

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

    @admin.display(description="seconds", ordering="-acquired_at")
    def seconds(self, lock: Lock) -> str:
        if lock.acquired_at is None:
            return ""
        return f"{(timezone.now() - lock.acquired_at).total_seconds():.0f}"

    @admin.display(description="waiters")
    def waiting(self, lock: Lock) -> int:
        state: LockState | None = getattr(lock, "told", None)
        return 0 if state is None else len(state.waiters)

    @admin.display(description="last run")
    def last_run(self, lock: Lock) -> str:
        run: RunState | None = getattr(lock, "run", None)
        return "" if run is None else f"{run.outcome}, {moment(run.started_at)}"

    @admin.display(ordering="expires_at")
    def state(self, lock: Lock) -> str:
        state: LockState | None = getattr(lock, "told", None)
        if state is not None and state.held:
            return state.status
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
