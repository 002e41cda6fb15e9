from dblock import Locks
from dblock.schema import upgrade

URL = "sqlite:///tutorial.db"  # in your application: the URL of your database

upgrade(URL)  # creates dblock's tables; a deployment runs "dblock upgrade" instead
locks = Locks(URL)

with locks.lease("report", ttl=30, wait=5) as lease:
    print("I have it, with fence", lease.fence)

from dblock import NotAcquired

others = Locks(URL)

with locks.lease("report", ttl=30):
    try:
        with others.lease("report", wait=0):
            print("never reached")
    except NotAcquired as refusal:
        print(refusal)

from dblock import LockLost

try:
    with locks.lease("report", ttl=30) as lease:
        others.release("report", force=True)
        lease.renew()  # dblock would have found out by itself within ten seconds
        print("never reached")
except LockLost as loss:
    print(loss)

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase): ...


class Product(Base):
    __tablename__ = "product"
    id: Mapped[int] = mapped_column(primary_key=True)
    stock: Mapped[int]


engine = create_engine(URL)
Base.metadata.drop_all(engine)
Base.metadata.create_all(engine)

with locks.lease("import", ttl=30) as lease:
    with Session(engine) as session, session.begin():
        with lease.guard(session) as fence:  # LockLost if the lease is not yours any more
            session.add(Product(id=7, stock=10))
print("imported")

with Session(engine) as session, session.begin():
    with locks.row("order:42", on=session):
        print("nobody else changes order 42 until the commit")

from dblock import NotEnough

stock = locks.counter(Product.stock, key=Product.id)
with Session(engine) as session, session.begin():
    stock.take(session, 7, 3)
    try:
        stock.take(session, 7, 1000)
    except NotEnough as error:
        print(error)
    print("left:", stock.value(session, 7))

for attempt in ("first", "again, because the reply was lost"):
    with Session(engine) as session, session.begin():
        for line, (product_id, amount) in enumerate([(7, 1), (7, 2)]):
            stock.take(session, product_id, amount, idempotency_key=f"order:{fence}:{line}")
        print(attempt, "- left:", stock.value(session, 7))

others.close()
locks.close()
