"""The page at `/`, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from selenium.common import StaleElementReferenceException
from selenium.webdriver.common.keys import Keys

from dblock import LockLost, Locks
from dblock.contrib.serve.page import HEADERS, PAGE
from tests.conftest import NewDatabase, find_or_skip
from tests.contrib.serve.running import Running, token
from tests.examples.browser import Browser
from tests.support import LONG, Threads, eventually

#: Names that a page must not take for markup, in a row's text and in its attributes.
MARKUP = (
    "<img src=x onerror='document.title=1'>",
    '"><script>document.title=2</script>',
    "<b>&lt;i&amp;",
    "a/b?c#d%2F ☾\U0001f512",
    "line\nbreak \u202eturned",
)
MANY = 600


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with find_or_skip(Browser) as browser:
        yield browser


@pytest.fixture
def url(new_database: NewDatabase) -> str:
    return new_database("sqlite", migrated=True).url


@pytest.fixture
def locks(url: str) -> Iterator[Locks]:
    with Locks(url, label="worker") as locks:
        yield locks


@pytest.fixture
def service(url: str, browser: Browser) -> Iterator[Running]:
    with Running(url) as service:
        yield service
        browser.chrome.get("about:blank")  # it would go on trying


def shows(browser: Browser, *texts: str) -> None:
    """Wait until the page shows the texts, and see that its own rules stopped nothing of it."""

    def seen() -> bool:
        text = " ".join(browser.text.split())
        return all(one in text for one in texts)

    with_patience(seen)
    # The browser reports each refused request: a wrong token, and a hold that is over.
    assert [said for said in browser.console() if not re.search("status of 4(01|12)", said)] == []


def with_patience(condition: Callable[[], bool]) -> None:
    def held() -> bool:
        with suppress(StaleElementReferenceException):  # the page has drawn it again
            return condition()
        return False

    eventually(held)


def row(browser: Browser, name: str) -> str:
    """A row of the table as a person reads it; "" without one."""
    script = """return [...document.querySelectorAll("#locks tr, #jobs tr")]
        .filter((row) => row.cells[0].innerText.trim() === arguments[0])
        .map((row) => row.innerText).join(" ")"""
    return " ".join(str(browser.chrome.execute_script(script, name)).split())


def press(browser: Browser, name: str) -> None:
    """Press the button in the row of a name."""
    script = """[...document.querySelectorAll("#locks tr")]
        .find((row) => row.cells[0].innerText === arguments[0]).querySelector("button").click()"""
    browser.chrome.execute_script(script, name)


def dialog_is_open(browser: Browser) -> bool:
    return bool(browser.chrome.execute_script("return document.querySelector('dialog').open"))


def media(browser: Browser, scheme: str) -> None:
    wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)


def test_who_holds_who_waits_and_how_jobs_ended(
    browser: Browser, service: Running, locks: Locks, url: str, threads: Threads
) -> None:
    @locks.cron("backup")
    def backup() -> None:
        raise KeyError("of the job")

    def wait() -> None:
        with Locks(url, label="waiting one") as others, others.lease("report"):
            pass

    media(browser, "light")
    with suppress(KeyError):
        backup()
    with locks.lease("report", ttl=3600), locks.lease("import", ttl=90):
        threads.start(wait)
        browser.chrome.get(service.address)
        shows(browser, "live", "Locks 2", "Jobs 1", "failed, exit status 1")
        told = r"report held \S+ pid \d+ worker (\d+ s|1 min.*) in 59 min \d+ s"
        with_patience(lambda: bool(re.match(told, row(browser, "report"))))
        # Live: a waiter, and how long everything has been, without a reload.
        eventually(lambda: "waiting one" in browser.chrome.page_source)
        before = row(browser, "report")
        eventually(lambda: row(browser, "report") != before)
        browser.find("#locks summary").send_keys(Keys.ENTER)
        shows(browser, "waiting one for")
        browser.picture("service")
    eventually(lambda: row(browser, "report") == row(browser, "import") == "")
    shows(browser, "No process holds a lock.")
    threads.join()


def test_no_name_and_no_label_is_markup(browser: Browser, service: Running, url: str) -> None:
    browser.chrome.get(service.address)
    for name in MARKUP:
        with Locks(url, label=name) as locks:
            locks.lease(name, ttl=600, renew=False).acquire()
            shown = re.sub(r"[\n\u202e]", lambda hit: rf"\u{{{ord(hit[0]):x}}}", name)
            shows(browser, shown)
            assert browser.chrome.title == "dblock"
            assert (
                browser.chrome.execute_script(
                    "return document.querySelectorAll('main :is(img, script, b, i)').length"
                )
                == 0
            )
            press(browser, shown)
            shows(browser, f"{shown} is held by")
            browser.find("#confirm-yes").click()
            shows(browser, f"{shown} was released by force.")
            assert locks.show(name).status == "free"
            assert browser.chrome.title == "dblock"


def test_force_release_asks_first(browser: Browser, service: Running, locks: Locks) -> None:
    browser.chrome.get(service.address)
    lease = locks.lease("report", ttl=LONG)
    lease.acquire()
    shows(browser, "report held")
    for refuse in (Keys.ENTER, Keys.ESCAPE):  # the first button keeps the lock
        press(browser, "report")
        shows(browser, "report is held by", "Until then two holders may be at work")
        browser.chrome.switch_to.active_element.send_keys(refuse)
        eventually(lambda: not dialog_is_open(browser))
        assert locks.show("report").held
    # Another has it by the time that the answer comes.
    press(browser, "report")
    lease.release()
    lease.acquire()
    fence = lease.fence
    eventually(
        lambda: browser.chrome.execute_script("return locks.get('report').told.fence") == fence
    )
    browser.find("#confirm-yes").click()
    shows(browser, "report is no longer held by", "nothing was done")
    assert locks.show("report").held
    press(browser, "report")
    browser.find("#confirm-yes").click()
    shows(browser, "report was released by force. Its holder was")
    eventually(lambda: row(browser, "report") == "")
    with pytest.raises(LockLost):
        lease.release()


def test_the_filter_and_many_names(browser: Browser, service: Running, locks: Locks) -> None:
    for number in range(MANY):
        locks.lease(f"order:{number}", ttl=600, renew=False).acquire()
    browser.chrome.get(service.address)
    shows(browser, f"Locks {MANY}", f"{MANY - 500} more. Use the filter")
    browser.find("#filter").send_keys("ORDER:59")
    shows(browser, f"11 of {MANY}")
    browser.find("#filter").send_keys("x")
    shows(browser, "The filter finds nothing.")


def test_on_a_phone_and_in_the_dark(browser: Browser, service: Running, locks: Locks) -> None:
    size = {"width": 375, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    grounds = set()
    with locks.lease("n" * 255, ttl=LONG), locks.lease("report", ttl=LONG):
        browser.chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        try:
            for scheme in ("light", "dark"):
                media(browser, scheme)
                browser.chrome.get(service.address)
                shows(browser, "live", "report", "worker")
                widths = "return [document.documentElement.scrollWidth, innerWidth]"
                assert browser.chrome.execute_script(widths) == [375, 375]
                press(browser, "n" * 255)
                assert browser.chrome.execute_script(widths) == [375, 375]
                grounds.add(browser.find("body").value_of_css_property("background-color"))
        finally:
            browser.chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            media(browser, "light")
    assert len(grounds) == 2


def test_what_a_reader_of_screens_gets(browser: Browser, service: Running, locks: Locks) -> None:
    with locks.lease("report", ttl=LONG):
        browser.chrome.get(service.address)
        shows(browser, "report held")
        tree = browser.chrome.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    found = {
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node["ignored"]
    }
    assert {
        ("searchbox", "Filter"),
        ("button", "Force release of report"),
        ("columnheader", "Holder"),
        ("heading", "dblock"),
    } <= found
    assert [name for role, name in found if role == "table" and "Locks" in name]
    assert "status" in {role for role, _ in found}


def test_tokens(browser: Browser, url: str, locks: Locks, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    reader = token(file, "reader", ["own/"], ["read"])
    admin = token(file, "admin", [""], ["read", "admin"])
    with (
        Running(url, file) as service,
        locks.lease("own/a", ttl=LONG),
    ):
        locks.lease("secret", ttl=600, renew=False).acquire()
        browser.chrome.get(service.address)
        shows(browser, "This service needs a token", "waiting for a token")

        def log_in(given: str) -> None:
            browser.find("#token").send_keys(given, Keys.ENTER)

        log_in("wrong")
        shows(browser, "The service does not know this token.")
        log_in(reader)
        shows(browser, "live", "own/a held", "Locks 1")
        assert "secret" not in browser.chrome.page_source
        assert "Force release" not in browser.find("#locks").text
        # The tab keeps it, and no other place does.
        browser.chrome.refresh()
        shows(browser, "live", "own/a held")
        kept = "return [localStorage.length, document.cookie, Object.values(sessionStorage)]"
        assert browser.chrome.execute_script(kept) == [0, "", [reader]]
        requested = "return performance.getEntries().map((one) => one.name).join()"
        assert reader not in browser.chrome.execute_script(requested)
        assert reader not in browser.chrome.current_url

        browser.find("#forget").click()
        shows(browser, "This service needs a token")
        assert browser.chrome.execute_script(kept) == [0, "", []]
        assert "own/a" not in browser.text
        log_in(admin)
        shows(browser, "live", "Locks 2")
        press(browser, "secret")
        browser.find("#confirm-yes").click()
        shows(browser, "secret was released by force.")
        file.write_text("")  # all tokens are withdrawn
        with locks.lease("more", ttl=LONG):
            shows(browser, "This service needs a token", "does not know this token")
        browser.chrome.get("about:blank")


def test_it_connects_again(browser: Browser, url: str, locks: Locks) -> None:
    with Running(url) as first:
        browser.chrome.get(first.address)
        eventually(lambda: "live" in browser.text)
    eventually(lambda: "connecting again" in browser.text)
    with Running(url, port=first.port), locks.lease("report", ttl=LONG):
        eventually(lambda: "report" in browser.text)
        eventually(lambda: browser.find("#status").text == "live")
        browser.chrome.get("about:blank")
    browser.console()  # of the time when there was no service


def test_below_a_path(browser: Browser, url: str, locks: Locks) -> None:
    with Running(url, below="/locks") as service:
        locks.lease("a/b", ttl=600, renew=False).acquire()
        browser.chrome.get(f"{service.address}/locks")
        shows(browser, "live", "a/b held")
        press(browser, "a/b")
        browser.find("#confirm-yes").click()
        shows(browser, "a/b was released by force.")
        browser.chrome.get("about:blank")


def test_its_policy(service: Running) -> None:
    with service.client() as client:
        answer = client.get("/")
    assert (answer.status_code, answer.text) == (200, PAGE)
    policy = answer.headers["content-security-policy"]
    assert policy == HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert not re.search(r"\b(src|href)=\"?(https?:)?//", PAGE)  # nothing from elsewhere
    assert not re.search(r"\.innerHTML|insertAdjacentHTML|document\.write|\son\w+=", PAGE)
