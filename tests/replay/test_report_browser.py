"""The HTML report in a browser: Debian's chromium without a window, driven by selenium.

Skipped where either is missing. With `--long` a trace of a million events too.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from batchspec.replay.checker import check
from batchspec.replay.demo import claims, excerpt, late_seats
from batchspec.replay.report.html.make import html_of
from batchspec.replay.simulate import simulate, trace_of
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.reader import open_trace
from batchspec.traces.recorder import Recorder

webdriver = pytest.importorskip("selenium.webdriver", reason="extra `test`")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not CHROMIUM or not DRIVER, reason="no chromium and chromedriver here")
DESKTOP, PHONE = (1280, 900), (375, 800)
PATIENCE_S = 60


class Browser:
    """A page in a browser, asked through its own elements as a reader would."""

    def __init__(self, driver) -> None:
        self.driver = driver

    def open(self, path: Path, size=DESKTOP, scheme="light") -> None:
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        # Without motion: what an action points at must not slide away while it is carried out.
        wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
        self.driver.get(path.as_uri())
        self.until("document.body.dataset.ready === 'yes'")

    def js(self, script: str, *arguments):
        return self.driver.execute_script(f"return {script}", *arguments)

    def until(self, script: str) -> None:
        WebDriverWait(self.driver, PATIENCE_S, poll_frequency=0.02).until(lambda _: self.js(script), script)

    def settled(self) -> None:
        """Every frame that was asked for is drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def find(self, selector: str):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        self.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", self.find(selector))
        self.find(selector).click()
        self.settled()

    def press(self, *keys: str) -> None:
        self.find("#picture").send_keys(*keys)
        self.settled()

    @property
    def state(self):
        return self.js("window.batchspecReport.state()")

    @property
    def complaints(self) -> list[str]:
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def colours(self, selector: str) -> int:
        """How many different colours a canvas shows (up to 64)."""
        return self.js(
            """(() => {
              const canvas = document.querySelector(arguments[0]), seen = new Set();
              const bytes = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
              for (let i = 0; i < bytes.length && seen.size < 64; i += 4)
                if (bytes[i + 3]) seen.add(bytes[i] << 16 | bytes[i + 1] << 8 | bytes[i + 2]);
              return seen.size;
            })()""",
            selector,
        )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    # Nothing is fetched: the page comes from disk. A container has little shared memory.
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield Browser(driver)
    driver.quit()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's second run: 973 steps, 8 slots, preemptions, findings."""
    profile = claims()
    trace = trace_of(excerpt(), late_seats(profile), seed=0)
    path = tmp_path_factory.mktemp("report") / "a report.html"
    path.write_text(html_of(trace, check(trace, profile, findings=3)), "utf-8")
    return path


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Browser]:
    browser.open(report)
    yield browser
    assert browser.complaints == []


def wide(state) -> float:
    return state["view"][1] - state["view"][0]


def test_it_opens_from_disk_without_a_complaint_or_a_request(page: Browser) -> None:
    assert page.js("performance.getEntriesByType('resource').length") == 0
    assert page.find(".badge").text == "violates"
    assert page.js("document.querySelectorAll('.u-wrap canvas').length") == 5
    assert page.colours("#picture") >= 4


def test_zoom_by_button_by_key_and_by_wheel(page: Browser) -> None:
    whole = page.state
    assert whole["view"] == [0, 973]
    page.click("#zoom-in")
    assert wide(page.state) == pytest.approx(486.5)
    page.press("+")
    assert wide(page.state) == pytest.approx(243.25)
    page.press("-", "-")
    assert wide(page.state) == pytest.approx(973)
    wheel = "{deltaY: -240, ctrlKey: true, clientX: 640, bubbles: true, cancelable: true}"
    page.js(f"document.querySelector('#picture').dispatchEvent(new WheelEvent('wheel', {wheel}))")
    page.settled()
    assert wide(page.state) < 400
    page.click("#fit")
    assert page.state["view"] == [0, 973]


def test_the_plots_show_the_stretch_of_the_picture(page: Browser) -> None:
    page.js("window.batchspecReport.look(100, 200)")
    page.settled()
    ranges = page.js(
        "window.batchspecReport.charts.plots.map((plot) => [plot.scales.x.min, plot.scales.x.max])"
    )
    assert ranges
    assert all(each == [100, 200] for each in ranges)


def test_dragging_across_a_plot_zooms_everything(page: Browser) -> None:
    over = page.find("#plot-kv .u-over")
    page.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", over)
    ActionChains(page.driver, duration=0).move_to_element_with_offset(
        over, -60, 0
    ).click_and_hold().move_by_offset(120, 0).release().perform()
    page.settled()
    assert 100 < wide(page.state) < 400


def test_pan_by_key_and_by_hand(page: Browser) -> None:
    page.press("+", "+")
    before = page.state["view"]
    page.press(Keys.ARROW_RIGHT)
    right = page.state["view"]
    assert right[0] > before[0]
    assert wide(page.state) == pytest.approx(before[1] - before[0])
    picture = page.find("#picture")
    ActionChains(page.driver, duration=0).move_to_element(picture).click_and_hold().move_by_offset(
        -60, 0
    ).move_by_offset(-60, 0).release().perform()
    page.settled()
    assert page.state["view"][0] > right[0]
    page.press(Keys.HOME)
    assert page.state["view"][0] == 0
    page.press(Keys.END)
    assert page.state["view"][1] == 973


def test_the_slider_says_who_sits_where(page: Browser) -> None:
    slider = page.find("#slider")
    page.js("arguments[0].focus()", slider)
    before = page.state["at"]
    slider.send_keys(Keys.ARROW_RIGHT)
    page.settled()
    assert page.state["at"] == before + 1
    assert page.find("#now").text.startswith(f"Step {before + 2}")
    assert page.driver.find_elements(By.CSS_SELECTOR, "#who button")
    box = page.find("#step")
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys("200", Keys.TAB)
    page.settled()
    assert page.state["at"] == 199
    page.click("#step-back")
    assert page.state["at"] == 198
    page.press(".")
    assert page.state["at"] == 199


def test_what_the_slider_says_is_what_the_trace_says(page: Browser) -> None:
    profile = claims()
    trace = trace_of(excerpt(), late_seats(profile), seed=0)
    members = [event.request for event in trace.events() if event.event == "schedule" and event.step == 300]
    page.js("window.batchspecReport.go(299)")
    page.settled()
    shown = [item.text for item in page.driver.find_elements(By.CSS_SELECTOR, "#who li")]
    assert sorted(text.partition(": ")[2] for text in shown) == sorted(map(str, members))


def test_a_request_can_be_followed(page: Browser) -> None:
    page.click("#who button")
    chosen = page.state["chosen"]
    assert chosen is not None
    assert page.find("#clear").is_displayed()
    page.press(Keys.ESCAPE)
    assert page.state["chosen"] is None
    name = page.js("window.batchspecReport.model.name(50)")
    page.find("#find").send_keys(str(name), Keys.TAB)
    page.settled()
    assert page.state["chosen"] == 50
    page.click("#clear")
    page.find("#find").clear()
    page.find("#find").send_keys("nobody", Keys.TAB)
    assert page.find("#find").get_attribute("aria-invalid") == "true"


def test_hovering_says_what_a_request_does(page: Browser) -> None:
    page.js("window.batchspecReport.look(180, 220)")
    page.settled()
    picture = page.find("#picture")
    page.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", picture)
    ActionChains(page.driver, duration=0).move_to_element_with_offset(picture, -100, -70).perform()
    page.until("!document.querySelector('#tip').hidden")
    tip = page.find("#tip").text
    assert "slot 0" in tip
    assert "prompt" in tip


def test_findings_can_be_visited_one_by_one(page: Browser) -> None:
    found = page.js("window.batchspecReport.model.findings.map((finding) => finding.at)")
    assert len(found) == 3
    page.press("f")
    page.press("f")
    assert page.state["at"] == found[1]
    page.press("F")
    assert page.state["at"] == found[0]
    page.click("[data-show='2']")
    assert page.state["at"] == found[2]
    page.js("window.scrollTo(0, document.querySelector('#findings').offsetTop)")
    page.until("document.querySelector('canvas[data-finding]').width > 300")
    assert page.colours("canvas[data-finding]") >= 3


def test_the_theme_follows_the_system_and_can_be_set(page: Browser, report: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.js(ground)
    page.open(report, scheme="dark")
    dark = page.js(ground)
    assert dark != light
    page.click("#theme")  # auto -> light
    assert page.js(ground) == light
    page.click("#theme")  # -> dark
    assert page.js(ground) == dark
    page.js("localStorage.clear()")


def test_the_rules_can_be_filtered(page: Browser) -> None:
    shown = "[...document.querySelectorAll('#rules tbody tr')].filter((row) => !row.hidden).length"
    every = page.js(shown)
    page.click("[data-filter='not checkable']")
    few = page.js(shown)
    assert 0 < few < every
    assert page.find("[data-filter='not checkable']").get_attribute("aria-pressed") == "true"
    page.click("[data-filter='all']")
    assert page.js(shown) == every


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(page: Browser, report: Path, scheme: str) -> None:
    page.open(report, size=PHONE, scheme=scheme)
    assert page.js("document.documentElement.scrollWidth") <= PHONE[0]
    outside = page.js(
        """[...document.querySelectorAll('main :is(section, article, canvas, button)')].filter((each) => {
          const box = each.getBoundingClientRect();
          return box.width && (box.right > innerWidth + 1 || box.left < -1);
        }).length"""
    )
    assert outside == 0
    page.click("#zoom-in")
    assert wide(page.state) < 973


def test_it_prints_light_with_everything_open(page: Browser, report: Path) -> None:
    page.open(report, scheme="dark")
    many = "document.querySelectorAll('details:not([open]):not(.screen)').length"
    drawn = "document.querySelector('#picture').toDataURL()"
    shut = page.js(many)
    assert shut
    before = page.js(drawn)
    page.js("window.dispatchEvent(new Event('beforeprint'))")
    assert page.js(many) == 0
    assert page.js("document.documentElement.dataset.theme") == "light"
    # Everything is drawn anew at once, what was never in sight too.
    assert page.js(drawn) != before
    widths = page.js("[...document.querySelectorAll('canvas[data-finding]')].map((each) => each.width)")
    assert min(widths) > 300
    page.js("window.dispatchEvent(new Event('afterprint'))")
    assert page.js(many) == shut
    assert page.js("document.documentElement.dataset.theme") == "dark"


def test_every_control_has_a_name_and_can_be_reached(page: Browser) -> None:
    nameless = page.js(
        """[...document.querySelectorAll('button, input, [tabindex]')].filter((each) => !each.hidden)
           .filter((each) => !each.getAttribute('aria-label') && !each.textContent.trim())
           .filter((each) => !each.labels?.length)
           .map((each) => each.outerHTML)"""
    )
    assert nameless == []
    page.js("document.querySelector('#fit').focus()")
    order = []
    for _ in range(10):
        ActionChains(page.driver, duration=0).send_keys(Keys.TAB).perform()
        order.append(page.js("document.activeElement.id"))
    assert [
        name for name in ("back", "on", "find", "picture", "step-back", "slider") if name not in order
    ] == []


def test_steps_that_a_pixel_could_not_show_are_summarised(page: Browser, report: Path) -> None:
    assert page.state["summarised"] is False
    page.open(report, size=PHONE)
    assert page.state["summarised"] is True
    assert page.find("#note").text.startswith("Summary: each column is ")
    page.js("window.batchspecReport.look(100, 200)")
    page.settled()
    assert page.state["summarised"] is False


def test_a_static_batch_is_hatched_where_slots_are_held(browser: Browser, tmp_path: Path) -> None:
    lengths = (6, 2, 8, 3, 5, 2, 7, 3)
    records = [Record(name, 0, 1, length) for name, length in zip("ABCDEFGH", lengths, strict=True)]
    limits = {"limits": {"max_seqs": 4}, "batching": {"mode": "static"}}
    trace = trace_of(records, Profile.from_dict(limits), seed=0)
    path = tmp_path / "static.html"
    path.write_text(html_of(trace, check(trace, Profile.from_dict(limits))), "utf-8")
    browser.open(path)
    held = browser.js(
        """(() => { const { runs } = window.batchspecReport.model; let held = 0;
          runs.kind.forEach((kind, i) => { if (kind === 3) held += runs.last[i] - runs.first[i] + 1; });
          return held; })()"""
    )
    assert held == 24  # 15 steps of 4 slots, of which 36 compute
    assert browser.complaints == []


@pytest.mark.slow
def test_a_million_events_render(browser: Browser, tmp_path: Path) -> None:
    random, now, records = Random(7), 0, []
    for number in range(6000):
        now += round(random.expovariate(1 / 60e6))
        tenant, lengths = random.choice("aaabc"), (random.randint(10, 500), random.randint(5, 300))
        records.append(Record(f"chat-{number}", now, *lengths, max_tokens=lengths[1], tenant=tenant))
    limits = {"max_seqs": 48, "token_budget": 1024, "kv_blocks": 900, "block_size": 16}
    profile = claims().merged(Profile.from_dict({"limits": limits}))
    with Recorder(tmp_path / "long.parquet", Header(complete=True, config=profile.to_dict())) as recorder:
        recorder.write_all(list(simulate(records, profile, seed=1)))
    trace = open_trace(tmp_path / "long.parquet")
    assert trace.num_rows > 900_000
    path = tmp_path / "long.html"
    path.write_text(html_of(trace, check(trace, profile, rules=("slots/exclusive",))), "utf-8")
    assert path.stat().st_size < 5_000_000
    for size, scheme in ((DESKTOP, "light"), (PHONE, "dark")):
        browser.open(path, size, scheme)
        assert browser.state["summarised"] is True
        assert browser.colours("#picture") >= 3
        browser.press("+", "+", "+", "+", "+", "+", "+")
        assert browser.state["summarised"] is False
        assert browser.complaints == []
