"""FastAPI's usual kinds of routes. Each can be decorated with ``idempotent``, and has a request."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from http import HTTPStatus
from types import FunctionType, NoneType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_type_hints
from uuid import UUID

from fastapi import (
    APIRouter,
    BackgroundTasks,
    Body,
    Depends,
    FastAPI,
    File,
    Form,
    Header,
    Path,
    Query,
    Request,
    Response,
    UploadFile,
)
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr, computed_field
from sqlalchemy import Column, Integer, String
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import declarative_base
from typing_extensions import TypedDict

ORDER = {"product": "pot"}
NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
NUMBER = UUID("8e03978e-40d5-43dd-bc93-6894a57f9324")

Endpoint = Callable[..., Coroutine[Any, Any, Any]]
T = TypeVar("T")


class Kind(NamedTuple):
    function: Endpoint
    #: What its decorator of FastAPI's is told.
    options: dict[str, Any]
    #: What is sent to it, as httpx takes it.
    request: dict[str, Any]
    path: str = ""


ROUTES: dict[str, Kind] = {}


def route(
    path: str = "", request: dict[str, Any] | None = None, **options: Any
) -> Callable[[Endpoint], Endpoint]:
    def add(function: Endpoint) -> Endpoint:
        ROUTES[function.__name__] = Kind(function, options, request or {"json": ORDER}, path)
        return function

    return add


async def session_of(request: Request) -> AsyncSession:
    session: AsyncSession = request.state.session
    return session


Session = Annotated[AsyncSession, Depends(session_of)]


class Order(BaseModel):
    product: str


class Placed(Order):
    secret: str = "of the shop"


class Aliased(BaseModel):
    order_number: int = Field(alias="orderNumber")
    at: datetime = Field(default=NOON, serialization_alias="placedAt")
    note: str | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.order_number


class Size(Enum):
    SMALL = "small"


class Page(BaseModel, Generic[T]):
    items: list[T]


class Typed(TypedDict):
    product: str


@dataclass
class Line:
    product: str
    at: date = date(2026, 11, 25)
    sizes: list[Size] = field(default_factory=lambda: [Size.SMALL])


class Mapped(declarative_base()):  # type: ignore[misc]
    __tablename__ = "mapped"
    id = Column(Integer, primary_key=True)
    product = Column(String(20))
    secret = Column(String(20))


class Read(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    id: int
    product: str


class Excited(JSONResponse):
    media_type = "application/vnd.excited+json"

    def render(self, content: Any) -> bytes:
        return super().render({"excited": content})


# --- What they return -------------------------------------------------------------------------


@route()
async def a_dict(request: Request, session: Session) -> dict[str, Any]:
    return {"at": NOON, "number": NUMBER, "price": Decimal("1.50"), "of": {1}, "size": Size.SMALL}


@route()
async def not_annotated(request: Request, session: Session):  # type: ignore[no-untyped-def]
    return {1: ("pot", timedelta(seconds=2)), "line": Line("pot"), "model": Order(product="pot")}


@route(status_code=201, response_model=Order)
async def a_model_for_another(request: Request, order: Order, session: Session) -> Placed:
    return Placed(product=order.product)


@route()
async def more_than_the_model_says(request: Request, order: Order, session: Session) -> Order:
    return Placed(product=order.product)


@route()
async def models(request: Request, session: Session) -> list[Order]:
    return [Order(product="pot"), Placed(product="pän")]


@route()
async def a_union(request: Request, session: Session) -> Order | Aliased | None:
    return Aliased(orderNumber=7)


@route()
async def a_generic(request: Request, session: Session) -> Page[Order]:
    return Page(items=[Order(product="pot")])


@route()
async def a_root(request: Request, session: Session) -> RootModel[list[int]]:
    return RootModel[list[int]]([1, 2])


@route()
async def a_typed_dict(request: Request, session: Session) -> Typed:
    return {"product": "pot"}


@route()
async def a_dataclass(request: Request, session: Session) -> Line:
    return Line("pot")


@route()
async def a_secret(request: Request, session: Session) -> dict[str, SecretStr]:
    return {"password": SecretStr("hunter2")}


@route()
async def aliases(request: Request, session: Session) -> Aliased:
    return Aliased(orderNumber=7)


@route(response_model_by_alias=False, response_model_exclude_none=True)
async def without_aliases(request: Request, session: Session) -> list[Aliased]:
    return [Aliased(orderNumber=7)]


@route(response_model_exclude_unset=True)
async def what_is_set(request: Request, session: Session) -> Aliased:
    return Aliased(orderNumber=7)


@route(response_model_exclude_defaults=True, response_model_exclude={"double"})
async def what_is_no_default(request: Request, session: Session) -> Aliased:
    return Aliased(orderNumber=7, note="now")


@route(response_model_include={"double"})
async def some_of_it(request: Request, session: Session) -> Aliased:
    return Aliased(orderNumber=7)


@route(response_model=Read)
async def mapped(request: Request, session: Session) -> Any:
    return Mapped(id=1, product="pot", secret="of the shop")


@route(response_model=list[Read])
async def all_mapped(request: Request, session: Session) -> Any:
    return [Mapped(id=1, product="pot", secret="of the shop")]


@route(response_model=None)
async def without_a_model(request: Request, session: Session) -> Aliased:
    return Aliased(orderNumber=7)


@route()
async def a_number(request: Request, session: Session) -> float:
    return 1e16


@route(response_model=dict[str, float])
async def no_number(request: Request, session: Session) -> Any:
    return {"is": math.nan}


@route()
async def a_word(request: Request, session: Session) -> str:
    return "Krückstock"


@route()
async def nothing(request: Request, session: Session) -> None:
    return None


@route(status_code=204)
async def no_content(request: Request, session: Session) -> None:
    return None


@route(response_class=HTMLResponse)
async def a_page(request: Request, session: Session) -> str:
    return "<b>ordered</b>"


@route(response_class=JSONResponse, response_model=Order)
async def a_class_of_its_own(request: Request, session: Session) -> Any:
    return Placed(product="pot")


@route(response_class=Excited, status_code=202)
async def a_class_that_renders(request: Request, session: Session) -> Any:
    return ["pot"]


@route(response_class=RedirectResponse)
async def elsewhere(request: Request, session: Session) -> str:
    return "/orders/7"


# --- Responses --------------------------------------------------------------------------------


@route(status_code=202)
async def a_response(request: Request, response: Response, session: Session) -> JSONResponse:
    response.headers["X-Ignored"] = "by FastAPI, as it makes no response here"
    return JSONResponse({"order": 7}, 201, {"Location": "/orders/7"})


@route(response_model=None)
async def a_response_or_not(request: Request, session: Session) -> Response | dict[str, Any]:
    return Response(b"\xff\0", 200, {"Link": "<1>"}, "application/octet-stream")


@route(response_model=None)
async def a_response_with_a_comment(
    request: Request, session: Session
) -> Annotated[Response, "a comment"]:
    return PlainTextResponse("ordered")


@route()
async def its_own(request: Request, response: Response, session: Session) -> Order:
    response.status_code = 202
    response.headers["Location"] = "/orders/7"
    response.headers.append("Link", "<1>")
    response.headers.append("Link", "<2>")
    response.set_cookie("one", "secret 1")
    response.set_cookie("two", "secret 2")
    return Order(product="pot")


@route(status_code=201)
async def its_own_and_no_content(
    request: Request, session: Session, said: Annotated[Response, "a comment"]
) -> None:
    said.status_code = 204
    said.headers["Location"] = "/orders/7"


@route()
async def its_own_by_default(
    request: Request,
    session: Session,
    response: Response = None,  # type: ignore[assignment]
) -> dict[str, Any]:
    response.status_code = HTTPStatus.NOT_FOUND
    return {"detail": "no such product"}


# --- What they are given ----------------------------------------------------------------------


async def say_who(response: Response, x_asked: Annotated[str, Header()] = "7") -> str:
    response.headers["X-Asked"] = x_asked
    response.headers["X-Shop"] = "open"
    response.headers["Vary"] = "X-Asked"
    return x_asked


async def say_more(response: Response, asked: Annotated[str, Depends(say_who)]) -> None:
    response.status_code = 203
    response.headers["X-More"] = asked


@route(dependencies=[Depends(say_more)])
async def dependencies(
    request: Request, response: Response, session: Session, who: Annotated[str, Depends(say_who)]
) -> Order:
    del response.headers["X-Shop"]
    response.headers["Vary"] = "X-Asked, Cookie"
    return Order(product=who)


@route("/{number}", {"params": {"page": 2}, "json": {"product": "pot", "note": "now"}})
async def parameters(
    request: Request,
    number: Annotated[int, Path()],
    page: Annotated[int, Query(ge=1)],
    product: Annotated[str, Body()],
    note: Annotated[str, Body()],
    session: Session,
    user_agent: Annotated[str | None, Header()] = None,
) -> dict[str, Any]:
    return {"number": number, "page": page, "product": product, "note": note, "by": user_agent}


#: What background tasks were told.
told: list[str] = []


@route()
async def in_the_background(
    request: Request, session: Session, tasks: BackgroundTasks
) -> dict[str, Any]:
    tasks.add_task(told.append, request.url.path)
    return {"order": 7}


FILES = {"file": ("a.txt", b"one", "text/plain")}


@route(request={"data": ORDER})
async def a_form(
    request: Request, session: Session, product: Annotated[str, Form()]
) -> dict[str, Any]:
    return {"product": product}


@route(request={"data": ORDER})
async def a_form_as_a_model(
    request: Request, session: Session, order: Annotated[Order, Form()]
) -> Order:
    return order


@route(request={"data": ORDER, "files": FILES})
async def a_form_with_a_file(
    request: Request, session: Session, product: Annotated[str, Form()], file: UploadFile
) -> dict[str, Any]:
    content = await file.read()
    return {"product": product, "file": content.decode(), "name": file.filename}


@route(request={"files": [("files", ("a", b"one")), ("files", ("b", b"two"))]})
async def files(
    request: Request, session: Session, files: Annotated[list[bytes], File()]
) -> list[str]:
    return [file.decode() for file in files]


@route(request={"data": {}})
async def an_empty_form(
    request: Request, session: Session, product: Annotated[str, Form()] = "pot"
) -> str:
    return product


@route(request={"json": ORDER})
async def json_for_a_form(
    request: Request, session: Session, product: Annotated[str, Form()] = "pot"
) -> str:
    return product


@route(request={"content": b"pot", "headers": {"content-type": "text/plain"}})
async def bytes_of_the_body(request: Request, session: Session) -> str:
    return (await request.body()).decode()


# --- Where they are ---------------------------------------------------------------------------


class Stamped(APIRoute):
    """Routes that do something around each of theirs."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def stamped(request: Request) -> Response:
            response = await handle(request)
            response.headers["X-Stamp"] = "of the router"
            return response

        return stamped


def evaluated(function: Endpoint) -> Endpoint:
    """The same function, with annotations that are no strings."""
    code, defaults = function.__code__, function.__defaults__
    made = FunctionType(code, globals(), function.__name__, defaults)
    hints = get_type_hints(function, include_extras=True)
    made.__annotations__ = {
        name: None if hint is NoneType else hint for name, hint in hints.items()
    }
    return made


def application(decorate: Callable[[Endpoint], Endpoint]) -> FastAPI:
    """Each route as it is, and decorated, with annotations of both kinds."""
    app = FastAPI()
    ways: dict[str, Callable[[Endpoint], Endpoint]] = {
        "plain": lambda function: function,
        "once": decorate,
        "evaluated": lambda function: decorate(evaluated(function)),
    }
    for way, made in ways.items():
        for name, kind in ROUTES.items():
            path, options = f"/{way}/{name}{kind.path}", kind.options
            app.add_api_route(path, made(kind.function), methods=["POST"], **options)

        @made
        async def somewhere(request: Request, session: Session) -> str:
            return "pot"

        stamped, outer = APIRouter(route_class=Stamped), APIRouter(prefix="/outer")
        inner = APIRouter(prefix="/inner", default_response_class=Excited)
        inside, below = FastAPI(), FastAPI(default_response_class=PlainTextResponse)
        for place in (stamped, inner, outer, inside, below):
            place.add_api_route("/somewhere", somewhere, methods=["POST"])
        outer.include_router(inner, dependencies=[Depends(say_who)])
        app.include_router(outer, prefix=f"/{way}", default_response_class=PlainTextResponse)
        app.include_router(stamped, prefix=f"/{way}/stamped")
        app.mount(f"/{way}/inside", inside)
        app.mount(f"/{way}/below", below)
    return app


PLACES = ("stamped", "outer", "outer/inner", "inside", "below")
