"""The admin's pages of locks in a real browser: who holds one, and taking it from them."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.support.select import Select

from dblock.cli import exits
from tests.conftest import find_or_skip
from tests.examples.browser import Browser
from tests.examples.conftest import Manage
from tests.examples.site import EXAMPLES, Site, command, started
from tests.servers import ServerMissing
from tests.support import SECONDS

PASSWORD = "as long as it has to be"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
DURATION = r"(\d+\.\d s|\d+ min \d+ s)"
COUNTING = 'sh -c "echo counting; read line"'


@pytest.fixture
def browser() -> Iterator[Browser]:
    with find_or_skip(Browser) as browser:
        yield browser


@pytest.fixture
def shop(env: dict[str, str]) -> Iterator[Site]:
    env |= {"DJANGO_SUPERUSER_PASSWORD": PASSWORD, "DJANGO_SUPERUSER_EMAIL": "ada@example.org"}
    with started("shop", "./start", env) as (site,):
        yield site


@pytest.fixture
def counting(env: dict[str, str], shop: Site) -> Iterator[subprocess.Popen[str]]:
    """A program that counts the teapots, which nobody can order meanwhile."""
    shop.visitor()
    line = command("shop", "python manage.py dblock run").replace("./count.sh", COUNTING)
    process = subprocess.Popen(
        "exec " + line.replace(" --", " --ttl 15 --label counting --", 1),
        shell=True,
        cwd=EXAMPLES / "shop",
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "counting\n"
        yield process


def log_in(browser: Browser, shop: Site, manage: Manage) -> None:
    shop.visitor()
    manage("python manage.py createsuperuser", "--noinput --username ada")
    browser.chrome.get(f"{shop.address}/admin/")
    browser.fill(username="ada", password=PASSWORD)
    browser.submit("[type=submit]")


def act(browser: Browser, action: str) -> None:
    """Do something to the first of a list, and stop at the page that asks."""
    browser.find(".action-select").click()
    Select(browser.find("[name=action]")).select_by_value(action)
    browser.submit("[name=index]")


def test_admin(
    browser: Browser, shop: Site, counting: subprocess.Popen[str], manage: Manage
) -> None:
    customer = shop.visitor()
    customer.get("/")
    busy = customer.post("/products/1/order", quantity=1)
    assert (busy.status, "Teapot is busy" in busy.text) == (503, True)

    log_in(browser, shop, manage)
    browser.submit("a[href='/admin/dblock/lock/']")
    row = " ".join(browser.find("#result_list tbody").text.split())
    holder = f"{socket.gethostname()} pid {counting.pid} counting"
    run = rf"running, started {TIME}"
    told = rf"product:1 running {re.escape(holder)} {DURATION} in {DURATION} 0 {run} 1"
    assert re.fullmatch(told, row)
    browser.picture("admin")

    # The page of the lock, and back to the list as it was.
    browser.find("#searchbar").send_keys("product")
    browser.submit("#changelist-search [type=submit]")
    browser.submit("#result_list tbody th a")
    page = " ".join(browser.text.split())
    for line in (r"Home . dblock . Locks . product:1", "State: running", f"Since: {TIME}"):
        assert re.search(line, page), line
    browser.submit("a.closelink")
    assert browser.chrome.current_url == f"{shop.address}/admin/dblock/lock/?q=product"

    act(browser, "force_release")
    browser.submit("a.cancel-link")
    assert browser.chrome.current_url == f"{shop.address}/admin/dblock/lock/?q=product"
    assert customer.post("/products/1/order", quantity=1).status == 503

    act(browser, "force_release")
    assert f"product:1, held by {holder}" in browser.text
    assert "Until then two may be at work" in browser.text
    browser.submit("#content [type=submit]")
    assert f"Taken: product:1, from {holder}" in browser.text
    assert "0 locks" in browser.text

    assert customer.post("/products/1/order", quantity=1).status == 200
    assert counting.wait(SECONDS) == exits.LOST


def test_a_report_is_made_again(
    browser: Browser, shop: Site, manage: Manage, env: dict[str, str]
) -> None:
    log_in(browser, shop, manage)
    breaks = [sys.executable, "manage.py", "dblock", "run", "backup", "--", "sh", "-c", "exit 3"]
    assert subprocess.run(breaks, cwd=EXAMPLES / "shop", env=env, timeout=SECONDS).returncode == 3
    assert manage("python manage.py nightly_report").startswith("Report 1")
    assert manage("python manage.py nightly_report").startswith("Nothing to do")
    browser.submit("a[href='/admin/dblock/run/']")
    rows = browser.find("#result_list tbody").text
    report, backup = (" ".join(line.split()) for line in rows.splitlines())
    took = rf"{TIME} {DURATION}"
    assert re.match(rf"nightly-report \d{{4}}-\d\d-\d\d succeeded {took} ", report)
    assert re.match(rf"backup - failed, exit status 3 {took} ", backup)
    browser.picture("runs")

    act(browser, "reopen")
    assert re.search(r"nightly-report, slot \d{4}-\d\d-\d\d", browser.text)
    browser.submit("#content [type=submit]")
    assert "The next start runs it" in browser.text
    assert "1 run" in browser.text
    # The report keeps its name for some minutes, in which no other host is to make it.
    browser.chrome.get(f"{shop.address}/admin/dblock/lock/")
    act(browser, "force_release")
    browser.submit("#content [type=submit]")
    assert manage("python manage.py nightly_report").startswith("Report 2")


def test_a_missing_browser_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerMissing, match=r"^Chromium tests skipped: .*apt install chromium"):
        Browser()
