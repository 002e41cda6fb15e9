from django.contrib import admin
from django.http import HttpRequest

from .models import Order, Product, Report


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ("name", "stock")

    def get_readonly_fields(
        self, request: HttpRequest, obj: Product | None = None
    ) -> tuple[str, ...]:
        # Saving a form that was open for a while would undo the orders placed meanwhile.
        return ("stock",) if obj else ()


@admin.register(Order, Report)
class ReadOnlyAdmin(admin.ModelAdmin):
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False
