"""The page in a real browser: everything on it clicked, and what it shows compared with the library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feasibly as fb
from feasibly.serve.shelf import Shelf
from tests.proxies import switched, trained
from tests.serve.browser import CHROMIUM, DRIVER, browsing, running, wait
from tests.serve.conftest import make_desk

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="no browser here, so the page is not tested: install chromium and chromium-driver",
)


@pytest.fixture(scope="module")
def models() -> dict[str, fb.Proxy]:
    """A certified grid with switches, and a problem without a grid."""
    return {"three": switched(), "own": trained("toy")[0]}


@pytest.fixture(scope="module")
def address(models: dict[str, fb.Proxy]) -> Iterator[str]:
    with running(make_desk(Shelf((), models, warm=(1,)))) as found:
        yield found


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browsing(tmp_path_factory.mktemp("profile")) as made:
        yield made


class Page:
    """The page as a user has it: things are found by what they are, and waited for."""

    def __init__(self, driver: Any, address: str, where: str = "") -> None:
        self.driver, self.address = driver, address
        driver.get("about:blank")
        driver.get(f"{address}/{where}")
        self.settle(0)

    def run(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(f"return {script}", *given)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return str(self.run("document.querySelector(arguments[0]).textContent", selector))

    def settle(self, before: int) -> None:
        """Until the slower questions of the latest change have been answered."""
        wait(
            lambda: self.run("window.feasibly && window.feasibly.settled") not in (None, *range(before + 1)),
            300,
        )

    def settled(self) -> int:
        return int(self.run("window.feasibly.settled"))

    def press(self, selector: str, *keys: str) -> None:
        before = self.settled()
        self.find(selector).send_keys(*keys)
        self.settle(before)

    @property
    def cost(self) -> float:
        """NaN where there is no answer."""
        seen = self.run("window.feasibly.seen ? window.feasibly.seen.objective : 0")
        return float("nan") if seen is None else float(seen)

    @property
    def x(self) -> np.ndarray:
        """The inputs that the page's state stands for, by the page's own rule."""
        script = (
            "const done = arguments[0]; import('/static/state.js').then((m) => "
            "done(m.inputs(window.feasibly.state, window.feasibly.model)))"
        )
        return np.array(self.driver.execute_async_script(script), dtype=np.float64)

    def pixels(self) -> int:
        """How many pixels of the map are painted in a colour (not grey)."""
        return int(self.run(
            "(() => { const m = document.getElementById('map'); const d = m.getContext('2d').getImageData(0, 0, "
            "m.width, m.height).data; let n = 0; for (let i = 0; i < d.length; i += 4) if (d[i + 3] && "
            "Math.max(d[i], d[i + 1], d[i + 2]) - Math.min(d[i], d[i + 1], d[i + 2]) > 40) n++; return n; })()"
        ))  # fmt: skip


RIGHT, LEFT, ENTER = "\ue014", "\ue012", "\ue007"


def test_sliders_move_the_answer_which_is_the_librarys(
    driver: Any, address: str, models: dict[str, fb.Proxy]
) -> None:
    page = Page(driver, address, "#model=three")
    usual = page.cost
    assert usual == pytest.approx(
        float(models["three"].predict(models["three"].problem.nominal).objective[0]), rel=1e-6
    )
    page.press("#system-load", *[RIGHT] * 6)  # by keyboard: half a per cent a press
    assert page.run("window.feasibly.state.system") == pytest.approx(1.03)
    raised = page.cost
    assert raised > usual
    page.press("#area-0", *[LEFT] * 8)
    assert page.cost < raised
    page.find("#find").send_keys("2", ENTER)
    wait(lambda: page.text("#picked-title") == "Bus 2")
    page.press("#one-pd_2", *[RIGHT] * 10)
    assert "pd_2" in page.run("window.feasibly.state.set")
    answer = models["three"].predict(page.x)
    assert page.cost == pytest.approx(float(answer.objective[0]), rel=1e-6)
    assert page.text("#verdict") == "Usable as it is"
    assert "Cost" in page.text("#status")
    page.find("#reset").click()
    wait(lambda: page.cost == pytest.approx(usual, rel=1e-9))


def test_the_grid_is_drawn_in_four_colours(driver: Any, address: str) -> None:
    page = Page(driver, address, "#model=three")
    seen = {}
    for colour in ("voltage", "loading", "price", "violation"):
        page.find(f"#colours input[value={colour}]").find_element("xpath", "..").click()
        wait(lambda colour=colour: page.run("window.feasibly.map.colour") == colour)
        page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        seen[colour] = (page.pixels(), page.text("#low"), page.text("#high"))
    assert seen["voltage"][0] > 50
    assert seen["loading"][0] > 50
    assert seen["price"][0] > 50
    assert len({each[1:] for each in seen.values()}) == 4
    before = page.run("window.feasibly.map.view.scale")
    page.find("#map").send_keys("+", RIGHT)
    assert page.run("window.feasibly.map.view.scale") > before
    page.find("#whole").click()
    assert page.run("window.feasibly.map.view.scale") == pytest.approx(before)


def test_a_bus_is_picked_on_the_map(driver: Any, address: str) -> None:
    from selenium.webdriver import ActionChains

    page = Page(driver, address, "#model=three")
    x, y = page.run("window.feasibly.map.point(1)")
    size = page.run("window.feasibly.map.size")
    chart = page.find("#map")
    ActionChains(driver).move_to_element_with_offset(
        chart, x - size["w"] / 2, y - size["h"] / 2
    ).click().perform()
    wait(lambda: page.text("#picked-title") == "Bus 2")
    assert "Bus 2" in page.text("#tip")
    assert "p.u." in page.text("#picked")


def test_the_ladder_stands_beside_the_solver(driver: Any, address: str, models: dict[str, fb.Proxy]) -> None:
    page = Page(driver, address, "#model=three")
    wait(lambda: "s" in page.text("#rung-ipopt td:last-child"))
    problem = models["three"].problem
    exact = fb.label(problem, problem.nominal[None].copy(), jobs=1).objective[0]
    for rung in ("mean", "conditioned", "polished", "solved", "ipopt"):
        cells = page.run(f"[...document.querySelectorAll('#rung-{rung} td')].map((c) => c.textContent)")
        assert float(cells[1].replace(",", "")) == pytest.approx(exact, rel=0.05 if rung == "mean" else 1e-4)
        assert cells[4].endswith("s")
    page.press("#answer", "p")  # polished, by its first letter
    wait(lambda: page.run("window.feasibly.seen.rung") == "polished")


def test_promise_and_what_binds(driver: Any, address: str, models: dict[str, fb.Proxy]) -> None:
    page = Page(driver, address, "#model=three")
    assert "80 % confidence" in page.text("#promised-gap")
    assert "Certificate" in page.text("#promise details")
    binds = models["three"].predict(models["three"].problem.nominal).binding
    rows = driver.find_elements("css selector", "#panel-binding tbody tr")
    assert len(rows) == len(binds) > 0
    rows[0].click()
    wait(lambda: page.text("#picked-title") != "One bus")
    # Tabs by keyboard, as the pattern has it.
    page.find("#tab-binding").send_keys(RIGHT)
    assert page.run("document.activeElement.id") == "tab-bus"
    assert page.find("#panel-bus").is_displayed()
    assert len(driver.find_elements("css selector", "#panel-bus tbody tr")) == 3


def test_an_answer_is_proved(driver: Any, address: str, models: dict[str, fb.Proxy]) -> None:
    page = Page(driver, address, "#model=own")
    page.find("#prove").click()
    wait(lambda: driver.find_elements("css selector", "#proven"))
    found = models["own"].predict(models["own"].problem.nominal, prove=True)
    shown = page.run("window.feasibly.seen.lower_bound")
    assert shown == pytest.approx(float(found.lower_bound[0]), rel=1e-6, abs=1e-9)
    assert "costs less than" in page.text("#proven")


def test_lines_and_units_are_switched(driver: Any, address: str, models: dict[str, fb.Proxy]) -> None:
    page = Page(driver, address, "#model=three")
    assert page.find("#switches-card").is_displayed()
    usual = page.cost
    before = page.settled()
    page.find("[data-switch='branch:3'] input").click()
    page.settle(before)
    assert page.run("Object.keys(window.feasibly.state.off)") == ["branch:3"]
    x = page.x
    where = models["three"].problem.inputs["branch"]
    assert (x[where] == 0).sum() == 1
    found = models["three"].predict(x)
    assert page.cost == pytest.approx(float(found.objective[0]), rel=1e-5)
    page.find("#switch-filter").send_keys("unit")
    before = page.settled()
    page.find("[data-switch^='generator:'] input").click()
    page.settle(before)
    found = models["three"].predict(page.x)
    assert page.run("window.feasibly.seen.outcome") == found.outcome_names[0] == "INFEASIBLE"
    assert "no answer" in page.text("#panel-binding")
    assert "no answer" in page.text("#panel-bus")
    assert page.cost == pytest.approx(float(found.objective[0]), rel=1e-5, nan_ok=True)
    assert page.cost != pytest.approx(usual, rel=1e-6)
    page = Page(driver, address, "#model=own")
    assert not page.find("#switches-card").is_displayed()


def test_a_file_is_answered_and_plotted(
    driver: Any, address: str, tmp_path: Path, models: dict[str, fb.Proxy]
) -> None:
    problem = models["three"].problem
    x = fb.sample(problem, 7, seed=3)
    lines = [",".join(problem.input_names), *(",".join(map(repr, row.tolist())) for row in x)]
    (tmp_path / "loads.csv").write_text("\n".join(lines))
    page = Page(driver, address, "#model=three")
    page.find("#tab-file").click()
    page.find("#file").send_keys(str(tmp_path / "loads.csv"))
    wait(lambda: page.text("#file-said").startswith("7 rows"))
    assert len(driver.find_elements("css selector", "#plots svg path.curve")) >= 5
    assert page.find("#download").get_attribute("href").startswith("blob:")
    csv = page.run("window.feasibly.files.csv")
    table = [line.split(",") for line in csv.strip().splitlines()]
    costs = [float(line[table[0].index("objective")] or "nan") for line in table[1:]]
    want = models["three"].predict(x)
    assert want.ok[2]
    np.testing.assert_allclose(np.array(costs)[want.ok], want.objective[want.ok], rtol=1e-6)
    assert [line[table[0].index("outcome")] for line in table[1:]] == list(want.outcome_names)
    before = page.settled()
    driver.find_elements("css selector", "#file-rows button")[2].click()
    page.settle(before)
    assert page.cost == pytest.approx(costs[2], rel=1e-4)
    (tmp_path / "bad.csv").write_text("pd_2,nonsense\n1,2\n")
    page.find("#file").send_keys(str(tmp_path / "bad.csv"))
    wait(lambda: "nonsense" in page.text("#file-said"))


def test_a_state_is_shared_by_its_address(driver: Any, address: str) -> None:
    page = Page(driver, address, "#model=three")
    page.press("#system-load", *[RIGHT] * 4)
    page.find("#colours input[value=loading]").find_element("xpath", "..").click()
    page.find("#find").send_keys("3", ENTER)
    cost, where = page.cost, page.run("location.hash")
    page.find("#share").click()
    wait(lambda: "address of this state" in page.text("#status"))
    again = Page(driver, address, where)
    assert again.cost == pytest.approx(cost, rel=1e-9)
    assert again.text("#picked-title") == "Bus 3"
    assert again.run("document.querySelector('input[name=colour]:checked').value") == "loading"


def test_a_problem_of_ones_own_has_the_page_without_the_grid(
    driver: Any, address: str, models: dict[str, fb.Proxy]
) -> None:
    page = Page(driver, address, "#model=three")
    before = page.settled()
    page.find("#model").send_keys("own")
    page.settle(before)
    assert not page.find("#map-box").is_displayed()
    assert not page.find("#loads-card").is_displayed()
    assert len(driver.find_elements("css selector", "#outputs tbody tr")) == 2
    page.press("#input-x0", *[RIGHT] * 12)
    assert page.cost == pytest.approx(float(models["own"].predict(page.x).objective[0]), abs=1e-6)


def test_nothing_comes_from_outside_and_everything_has_a_name(driver: Any, address: str) -> None:
    page = Page(driver, address, "#model=three")
    loaded = page.run("performance.getEntriesByType('resource').map((e) => e.name)")
    assert loaded
    assert all(each.startswith((address, "blob:")) for each in loaded)
    nameless = page.run(
        "[...document.querySelectorAll('input, select, button, canvas[role], a')]"
        ".filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length) "
        "|| e.closest('[aria-hidden]'))).map((e) => e.outerHTML)"
    )
    assert nameless == []
    assert page.run("document.querySelector('#status').getAttribute('aria-live')") == "polite"
    errors = [
        line
        for line in driver.get_log("browser")
        if line["level"] == "SEVERE" and "422" not in line["message"]
    ]
    assert errors == []


def test_it_can_be_read_on_a_phone(driver: Any, address: str) -> None:
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True},
    )
    try:
        page = Page(driver, address, "#model=three")
        assert page.run("document.documentElement.scrollWidth") <= 390
        assert page.run("document.getElementById('map').clientWidth") > 300
        assert (
            page.run(
                "Math.min(...[...document.querySelectorAll('header button')].map((e) => e.offsetHeight))"
            )
            >= 40
        )
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_documentation_of_the_endpoints(driver: Any, address: str) -> None:
    driver.get(f"{address}/docs")
    wait(lambda: len(driver.find_elements("css selector", ".path")) > 10)
    entry = driver.find_element("xpath", "//details[.//code[text()='/models/{name}/answer']]")
    entry.find_element("css selector", "summary").click()
    entry.find_element("xpath", ".//button[text()='Send']").click()
    wait(lambda: '"outcome": "OK"' in entry.find_element("css selector", "pre").text)


def test_the_token_is_asked_for(models: dict[str, fb.Proxy], tmp_path: Path) -> None:
    desk = make_desk(Shelf((), {"own": models["own"]}, warm=(1,)))
    with running(desk, token="a-long-enough-token") as address, browsing(tmp_path / "profile") as driver:
        driver.get(address)
        wait(lambda: driver.find_element("id", "token").is_displayed())
        driver.find_element("id", "token").send_keys("a-long-enough-token", ENTER)
        wait(lambda: driver.execute_script("return window.feasibly.settled") > 0)


PICTURES = os.environ.get("FEASIBLY_PICTURES")
"""`FOLDER=ADDRESS`: where screenshots go, and a server of the models below to take them of."""


@pytest.mark.skipif(not PICTURES, reason="pictures are taken on request: FEASIBLY_PICTURES=FOLDER=ADDRESS")
@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("case57", "colour=price&system=1.05"),
        ("case118", "colour=loading&system=1.1&bus=49"),
        ("case2000", ""),
        ("case57-switched", "colour=loading&off=branch:10"),
    ],
)
def test_pictures_for_the_documentation(driver: Any, name: str, rest: str) -> None:
    folder, _, address = str(PICTURES).partition("=")
    driver.set_window_size(1400, 1100)
    page = Page(driver, address, f"#model={name}&{rest}")
    if page.run("window.feasibly.model.buses") < 300:
        wait(lambda: "s" in page.text("#rung-ipopt td:last-child"), 200)
    page.run("window.feasibly.map.frames.splice(0)")
    for _ in range(40):  # moved about, it has to keep up with the screen
        page.run("window.feasibly.map.pan(1, 0)")
    page.run("window.feasibly.map.whole()")
    wait(lambda: page.run("window.feasibly.map.frames.length") > 5)
    print(name, "milliseconds a frame:", page.run("window.feasibly.map.frames"))
    driver.save_screenshot(str(Path(folder) / f"serve-{name}.png"))
