"""A box office: it never sells a seat twice, and reminds everybody once."""

import os
from typing import Any

from flask import Flask, abort, request
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import ForeignKey, String, select, update
from sqlalchemy.orm import Mapped, mapped_column

from dblock import NotAcquired, NotEnough
from dblock.contrib.flask import DBLock

db = SQLAlchemy()
locks = DBLock()

Answer = tuple[dict[str, Any], int]


class Concert(db.Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(String(80))
    seats: Mapped[int]  # that are left


class Ticket(db.Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    concert_id: Mapped[int] = mapped_column(ForeignKey(Concert.id))
    email: Mapped[str] = mapped_column(String(254))
    reminded: Mapped[bool] = mapped_column(default=False)


def create_app() -> Flask:
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = os.environ["DATABASE_URL"]
    app.config["OUTBOX"] = os.environ.get("OUTBOX", "outbox.txt")  # in place of a mail server
    db.init_app(app)
    locks.init_app(app)
    with app.app_context():
        seats = locks.locks.counter(Concert.seats, key=Concert.id)

    @app.get("/")
    def concerts() -> list[dict[str, Any]]:
        found = db.session.scalars(select(Concert).order_by(Concert.id))
        return [{"id": one.id, "title": one.title, "seats": one.seats} for one in found]

    @app.post("/concerts/<int:concert_id>/tickets")
    def buy(concert_id: int) -> Answer:
        try:
            seats.take(db.session, concert_id)  # one statement, which commits with the ticket
        except LookupError:
            abort(404)
        ticket = Ticket(concert_id=concert_id, email=request.form["email"])
        db.session.add(ticket)
        db.session.commit()
        return {"ticket": ticket.id}, 201

    @app.post("/reminders")
    def remind() -> Answer:
        lease = locks.acquire("reminders", ttl=30, wait=0)  # given back when the request ends
        query = select(Ticket.id, Ticket.email).where(~Ticket.reminded).order_by(Ticket.id)
        tickets = db.session.execute(query).all()
        db.session.commit()  # no transaction is open while mail is sent: a lease needs none
        with open(app.config["OUTBOX"], "a") as outbox:
            for ticket, email in tickets:
                lease.check()  # raises LockLost once another may be sending
                print(f"To: {email}. Your ticket is number {ticket}.", file=outbox, flush=True)
                with lease.guard(db.session):  # as lease.check(), but until the commit
                    done = update(Ticket).where(Ticket.id == ticket).values(reminded=True)
                    db.session.execute(done)
                    db.session.commit()
        return {"sent": len(tickets)}, 200

    @app.errorhandler(NotEnough)
    def sold_out(error: NotEnough) -> Answer:
        return {"error": "sold out"}, 409

    @app.errorhandler(NotAcquired)
    def busy(error: NotAcquired) -> Answer:
        return {"error": str(error)}, 503

    @app.cli.command()
    def open_the_office() -> None:
        """Make the tables, and the first concert."""
        db.create_all()
        if db.session.scalar(select(Concert)) is None:
            db.session.add(Concert(title="Goldberg Variations", seats=30))
            db.session.commit()

    return app
