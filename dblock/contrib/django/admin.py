"""The admin's pages of leases and of jobs' runs. An operator can release a lease without its
holder, and let a job run again in a slot."""

from __future__ import annotations

from collections.abc import Container
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.db.models import BooleanField, Model, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe

from ...lock_state import LockState, RunState, printable
from .admin_text import NOTHING, aware, duration, moment, result, unbroken
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
        """Read the states of all rows of a page at once."""

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *more: Any, **named: Any
    ) -> HttpResponse | None:
        """Take the keys as they are: a browser sends a line break as two characters."""
        posted: Any = request.POST.copy()
        sent = posted.getlist(ACTION_CHECKBOX_NAME)
        there = set(queryset.filter(pk__in=sent).values_list("pk", flat=True))
        exact = [key if key in there else key.replace("\r\n", "\n") for key in sent]
        posted.setlist(ACTION_CHECKBOX_NAME, exact)
        request.POST = posted
        return super().response_action(request, queryset, *more, **named)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def _get_obj_does_not_exist_redirect(
        self, request: HttpRequest, opts: Any, object_id: str
    ) -> HttpResponse:
        """Redirect to the list as it was. Django would redirect to the admin's first page."""
        messages.warning(request, printable(self.gone(unquote(object_id))))
        address = reverse(f"{self.admin_site.name}:{opts.app_label}_{opts.model_name}_changelist")
        filters = {"preserved_filters": self.get_preserved_filters(request), "opts": opts}
        return HttpResponseRedirect(add_preserved_filters(filters, address))

    def gone(self, key: str) -> str:
        """Say that there is nothing to show under this key any more."""
        raise NotImplementedError

    def confirm(
        self, request: HttpRequest, chosen: list[tuple[Model, str]], **context: str
    ) -> HttpResponse:
        """Ask before an action is done."""
        page = self.admin_site.each_context(request)
        asked = {"opts": self.opts, "chosen": chosen, "checkbox": ACTION_CHECKBOX_NAME, **context}
        # The list with its filters, which the form is sent to as well.
        asked["back"] = request.get_full_path()
        return TemplateResponse(request, "dblock/confirm.html", {**page, **asked})


@admin.register(Lock)
class LockAdmin(TableAdmin):
    list_display = (
        *("lock_name", "state", "holder", "held_for", "expires"),
        *("waiting", "last_run", "fence"),
    )
    search_help_text = "A part of the name or of the holder"
    ordering = ("lock_name",)
    actions = ("force_release",)
    fields = (
        *("lock_name", "state", "holder", "since", "held_for", "expires"),
        *("waiters", "last_run", "runs", "fence"),
    )
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Lock]:
        leased = RawSQL("token IS NOT NULL", (), output_field=BooleanField())
        return Lock.objects.using(alias()).filter(leased)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Leave out the link to the runs if the user lacks the permission to see them."""
        user: Any = request.user
        leads = self.admin_site.is_registered(Run) and user.has_perm("dblock.view_run")
        return [field for field in self.fields if leads or field != "runs"]

    def look(self, shown: Any) -> None:
        locks = made(alias())
        states = {state.name: state for state in locks.list()}
        runs = {run.name: run for run in locks.last_runs()}
        for lock in shown:
            name = lock.lock_name
            # A name that is not listed has become free.
            lock.told = states.get(name, LockState(name, lock.fence)), runs.get(name)

    def told(self, lock: Any) -> tuple[LockState, RunState | None]:
        """Return the state of a lock, and the last run of its job."""
        if not hasattr(lock, "told"):
            locks = made(alias())
            lock.told = locks.show(lock.lock_name), locks.last_run(lock.lock_name)
        told: tuple[LockState, RunState | None] = lock.told
        return told

    def leased(self, lock: Lock) -> LockState | None:
        """Return the state of a lock that a lease is on, held or expired."""
        state, _ = self.told(lock)
        return state if state.held or state.status == "expired" else None

    def gone(self, key: str) -> str:
        return f"Nobody holds {key} any more"

    def has_force_release_permission(self, request: HttpRequest) -> bool:
        user: Any = request.user
        return bool(user.has_perm("dblock.force_release_lock"))

    @admin.display(ordering="expires_at")
    def state(self, lock: Lock) -> str:
        state, _ = self.told(lock)
        if state.status == "done":
            return format_html("done, kept until {}", moment(state.expires_at))
        if state.held and state.readers is not None:
            return f"{state.status}, shared by {state.readers}"
        return state.status

    @admin.display(ordering="owner")
    def holder(self, lock: Lock) -> str:
        state = self.leased(lock)
        return (state and state.owner) or NOTHING

    @admin.display(ordering="acquired_at")
    def since(self, lock: Lock) -> str:
        state = self.leased(lock)
        return NOTHING if state is None else moment(state.acquired_at)

    @admin.display(description="held for", ordering="-acquired_at")
    def held_for(self, lock: Lock) -> str:
        state, _ = self.told(lock)
        if not (state.held and state.acquired_at and state.expires_at and state.remaining):
            return NOTHING
        # From the database's times: this host's clock may differ.
        whole = (state.expires_at - state.acquired_at).total_seconds()
        return unbroken(duration(whole - state.remaining))

    @admin.display(ordering="expires_at")
    def expires(self, lock: Lock) -> str:
        state = self.leased(lock)
        if state is None or state.remaining is None:
            return NOTHING
        if state.held:
            return unbroken(f"in {duration(state.remaining)}")
        return unbroken(f"{duration(-state.remaining)} ago")

    @admin.display(description="waiters")
    def waiting(self, lock: Lock) -> int:
        state, _ = self.told(lock)
        return len(state.waiters)

    @admin.display(description="last run")
    def last_run(self, lock: Lock) -> str:
        _, run = self.told(lock)
        if run is None:
            return NOTHING
        if run.ended_at is not None:
            return format_html("{}, ended {}", result(run), moment(run.ended_at))
        return format_html("{}, started {}", result(run), moment(run.started_at))

    def waiters(self, lock: Lock) -> str:
        state, _ = self.told(lock)
        lines = [(waiter.describe(),) for waiter in state.waiters]
        return format_html_join(mark_safe("<br>"), "{}", lines) or "nobody waits"

    def runs(self, lock: Lock) -> str:
        address = reverse(f"{self.admin_site.name}:dblock_run_changelist")
        query = urlencode({"lock_name": lock.lock_name})
        return format_html('<a href="{}?{}">Runs of this job</a>', address, query)

    def _holding(self, lock: Lock) -> str:
        state, _ = self.told(lock)
        how = "held by" if state.held else "last held by"
        return format_html("<bdi>{}</bdi>, {} <bdi>{}</bdi>", lock.lock_name, how, lock.owner)

    @admin.action(description="Take from their holders", permissions=["force_release"])
    def force_release(self, request: HttpRequest, chosen: QuerySet[Lock]) -> HttpResponse | None:
        locks = made(alias())
        there = list(chosen)
        names = {lock.lock_name for lock in there}
        for name in request.POST.getlist(ACTION_CHECKBOX_NAME):
            if name not in names:
                messages.warning(request, printable(self.gone(name)))
        if there and "confirmed" not in request.POST:
            self.look(there)
            return self.confirm(
                request,
                [(lock, self._holding(lock)) for lock in there],
                title="Take locks from their holders?",
                warning="A holder learns of it with its next renewal. "
                "Until then two may be at work.",
                action="force_release",
                button="Take them",
            )
        # Django's templates capitalise the first letter of a message. So it does not begin with a
        # name.
        taken = []
        for lock in there:
            if locks.release(lock.lock_name, force=True):
                taken.append(lock)
                messages.success(request, printable(f"Taken: {lock.lock_name}, from {lock.owner}"))
            else:
                messages.warning(request, printable(self.gone(lock.lock_name)))
        # This comes last: on SQLite the request may be the one writer from here on.
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


class StartFilter(admin.DateFieldListFilter):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.title = "start"


@admin.register(Run)
class RunAdmin(TableAdmin):
    list_display = ("lock_name", "slot", "outcome", "started", "took", "owner")
    # No date_hierarchy, which needs time zones in MariaDB that are not always there.
    list_filter = (
        OutcomeFilter,
        ("started_at", StartFilter),
        ("lock_name", admin.AllValuesFieldListFilter),
    )
    search_help_text = "A part of the job's name or of the host"
    ordering = ("-started_at",)
    actions = ("reopen",)
    fields = (
        *("lock_name", "slot", "outcome"),
        *("started", "ended", "took", "owner", "fence"),
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

    def gone(self, key: str) -> str:
        fence, _, name = key.partition(" ")
        return f"Run {fence} of {name} is not on record any more"

    def _state(self, run: Run, running: Container[str]) -> RunState:
        started = aware(run.started_at)
        ended = None if run.ended_at is None else aware(run.ended_at)
        whose, times = (run.fence, run.owner), (started, ended)
        return RunState(run.lock_name, run.slot, *whose, *times, run.exit_status, run.pk in running)

    def told(self, run: Any) -> RunState:
        if not hasattr(run, "told"):
            self.look([run])
        told: RunState = run.told
        return told

    @admin.display()
    def outcome(self, run: Run) -> str:
        return result(self.told(run))

    @admin.display(ordering="started_at")
    def started(self, run: Run) -> str:
        return moment(self.told(run).started_at)

    @admin.display(ordering="ended_at")
    def ended(self, run: Run) -> str:
        return moment(self.told(run).ended_at)

    @admin.display()
    def took(self, run: Run) -> str:
        seconds = self.told(run).seconds
        return NOTHING if seconds is None else unbroken(duration(seconds))

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
