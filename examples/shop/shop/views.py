from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from dblock import NotAcquired

from . import orders
from .models import Order, Product


class OrderForm(forms.Form):
    quantity = forms.IntegerField(min_value=1)


def shelf(request: HttpRequest, trouble: str = "", status: int = 200) -> HttpResponse:
    products = Product.objects.order_by("name")
    context = {"products": products, "trouble": trouble}
    return render(request, "shop/shelf.html", context, status=status)


@require_POST
def place_order(request: HttpRequest, product_id: int) -> HttpResponse:
    product = get_object_or_404(Product, pk=product_id)
    form = OrderForm(request.POST)
    if not form.is_valid():
        return shelf(request, "How many?", 400)
    try:
        order = orders.place(product_id, form.cleaned_data["quantity"])
    except orders.SoldOut as error:
        return shelf(request, str(error), 409)
    except NotAcquired:
        return shelf(request, f"{product} is busy. Please try again.", 503)
    return redirect("order", order.pk)


def order(request: HttpRequest, order_id: int) -> HttpResponse:
    found = get_object_or_404(Order.objects.select_related("product"), pk=order_id)
    return render(request, "shop/order.html", {"order": found})
