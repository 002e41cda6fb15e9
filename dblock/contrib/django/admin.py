"""The admin's pages: who holds which lease, and the way to take it from them; how jobs' runs ended,
and the way to let one run again."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.db.models import BooleanField, Model, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.timesince import timesince

from ...lock_state import LockState, RunState
from ...printable import moment, printable
from .alias import alias
from .handles import made
from .models import Lock, Run


class TableAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not generic when it runs
    """The page of a table that only dblock writes."""

    search_fields = ("owner",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find a part of the name too: on MariaDB that is bytes, in which Django cannot search."""
        found, duplicates = super().get_search_results(request, queryset, search_term)
        sought = search_term.casefold()
        every = queryset.order_by().values_list("lock_name", flat=True).distinct() if sought else ()
        names = [name for name in every if sought in name.casefold()]
        return (found | queryset.filter(lock_name__in=names) if names else found), duplicates

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        page = super().get_changelist_instance(request)
        shown: Any = list(page.result_list)
        self.look(shown)
        page.result_list = shown
        return page

    def look(self, shown: Any) -> None:
        """Read what is told of all rows of a page, once for the page."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def confirm(
        self, request: HttpRequest, chosen: Iterable[tuple[Model, str]], **context: str
    ) -> HttpResponse:
        """Ask before an action is done."""
        page = self.admin_site.each_context(request)
        asked = {"opts": self.opts, "chosen": chosen, "checkbox": ACTION_CHECKBOX_NAME, **context}
        return TemplateResponse(request, "dblock/confirm.html", {**page, **asked})


@admin.register(Lock)
class LockAdmin(TableAdmin):
    list_display = (
        *("lock_name", "owner", "age", "seconds", "state"),
        *("waiting", "last_run", "fence"),
    )
    search_help_text = "A part of the name or of the holder"
    ordering = ("lock_name",)
    actions = ("force_release",)
    fields = (
        *("lock_name", "owner", "age", "state", "acquired_at", "expires_at", "fence"),
        *("waiters", "runs"),
    )
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Lock]:
        leased = RawSQL("token IS NOT NULL", (), output_field=BooleanField())
        return Lock.objects.using(alias()).filter(leased)

    def look(self, shown: Any) -> None:
        locks = made(alias())
        states = {state.name: state for state in locks.list()}
        runs = {run.name: run for run in locks.last_runs()}
        for lock in shown:
            lock.told, lock.run = states.get(lock.lock_name), runs.get(lock.lock_name)

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

    def runs(self, lock: Lock) -> str:
        address = reverse(f"{self.admin_site.name}:dblock_run_changelist")
        query = urlencode({"lock_name": lock.lock_name})
        return format_html('<a href="{}?{}">Runs of this job</a>', address, query)

    @admin.action(description="Take from their holders", permissions=["force_release"])
    def force_release(self, request: HttpRequest, chosen: QuerySet[Lock]) -> HttpResponse | None:
        locks = made(alias())
        if "confirmed" not in request.POST:
            told = "<bdi>{}</bdi>, held by <bdi>{}</bdi>"
            return self.confirm(
                request,
                [(lock, format_html(told, lock.lock_name, lock.owner)) for lock in chosen],
                title="Take locks from their holders?",
                warning="A holder learns of it with its next renewal. "
                "Until then two may be at work.",
                action="force_release",
                button="Take them",
            )
        # Django's templates begin a message with a capital, which no name is to be hit by.
        taken = []
        for lock in chosen:
            if locks.release(lock.lock_name, force=True):
                taken.append(lock)
                messages.success(request, printable(f"Taken: {lock.lock_name}, from {lock.owner}"))
            else:
                messages.warning(request, printable(f"Nobody held {lock.lock_name} any more"))
        # At last: on SQLite this request may be the one writer from here on.
        for lock in taken:
            self.log_change(request, lock, printable(f"Taken from {lock.owner}"))
        return None


def held() -> list[str]:
    """Return the keys of the runs whose leases are held."""
    return [f"{lock.fence} {lock.name}" for lock in made(alias()).list() if lock.held]


class OutcomeFilter(admin.SimpleListFilter):
    title = "outcome"
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(one, one) for one in ("succeeded", "failed", "running", "unknown")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        match self.value():
            case "succeeded":
                return queryset.filter(exit_status=0)
            case "failed":
                return queryset.filter(ended_at__isnull=False).exclude(exit_status=0)
            case "running":
                return queryset.filter(ended_at=None, pk__in=held())
            case "unknown":
                return queryset.filter(ended_at=None).exclude(pk__in=held())
        return queryset


@admin.register(Run)
class RunAdmin(TableAdmin):
    list_display = ("lock_name", "slot", "outcome", "started_at", "seconds", "owner")
    # No date_hierarchy, which needs time zones in MariaDB that are not always there.
    list_filter = (OutcomeFilter, "started_at", ("lock_name", admin.AllValuesFieldListFilter))
    search_help_text = "A part of the job's name or of the host"
    ordering = ("-started_at",)
    actions = ("reopen",)
    fields = (
        *("lock_name", "slot", "outcome", "exit_status"),
        *("started_at", "ended_at", "seconds", "owner", "fence"),
    )
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        return Run.objects.using(alias())

    def look(self, shown: Any) -> None:
        running = set(held())
        for run in shown:
            run.told = self._state(run, running)

    def has_reopen_permission(self, request: HttpRequest) -> bool:
        user: Any = request.user
        return bool(user.has_perm("dblock.reopen_run"))

    def _state(self, run: Run, running: Container[str]) -> RunState:
        whose, times = (run.fence, run.owner), (run.started_at, run.ended_at)
        return RunState(run.lock_name, run.slot, *whose, *times, run.exit_status, run.pk in running)

    @admin.display()
    def outcome(self, run: Run) -> str:
        told: RunState = getattr(run, "told", None) or self._state(run, held())
        return told.outcome

    @admin.display(description="seconds")
    def seconds(self, run: Run) -> str:
        seconds = self._state(run, ()).seconds
        return "" if seconds is None else f"{seconds:.1f}"

    @admin.action(description="Run these slots again", permissions=["reopen"])
    def reopen(self, request: HttpRequest, chosen: QuerySet[Run]) -> HttpResponse | None:
        closed = [run for run in chosen if run.slot and run.exit_status == 0]
        if not closed:
            messages.warning(request, "Nothing to do: no run of these has succeeded in a slot")
            return None
        if "confirmed" not in request.POST:
            told = "<bdi>{}</bdi>, slot <bdi>{}</bdi>"
            return self.confirm(
                request,
                [(run, format_html(told, run.lock_name, run.slot)) for run in closed],
                title="Run these slots again?",
                warning="This deletes the record of the run that succeeded. Nothing is started: "
                "the next start of the job in this slot runs it again.",
                action="reopen",
                button="Run them again",
            )
        gone: Any = []
        for run in closed:
            slot = f"{run.slot} of {run.lock_name}"
            if made(alias()).reopen(run.lock_name, run.slot):
                gone.append(run)
                messages.success(request, printable(f"Open: {slot}. The next start runs it"))
            else:
                messages.warning(request, printable(f"It was open already: {slot}"))
        self.log_deletions(request, gone)
        return None
