from django.contrib import admin
from django.urls import path

from . import views

urlpatterns = [
    path("", views.shelf, name="shelf"),
    path("products/<int:product_id>/order", views.place_order, name="place-order"),
    path("orders/<int:order_id>", views.order, name="order"),
    path("admin/", admin.site.urls),
]
