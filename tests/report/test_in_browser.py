"""The report in a real browser: drawn, offline, used by mouse and keyboard, on any screen."""

import numpy as np
import pandas as pd
import pytest

from knoi import LinearCCA
from knoi.demo import demo_report, run_demo
from knoi.report import model_report
from tests.report.reading import page_data, unpack

PLOTS = ("correlations", "curve", "scatter", "recall", "loadings-X", "loadings-Y")

HOSTILE = "</script><img src=x onerror=alert(1)><b>bold</b>"
HOSTILE_LABELS = [HOSTILE, "<a href='javascript:alert(1)'>a</a>", "<b>b</b>"]
WIDE, PHONE = {"width": 1000, "height": 900}, {"width": 375, "height": 700}


class Visit:
    """A report opened from disk, and the messages and requests of the browser."""

    def __init__(self, browser, report, path, **context):
        report.write(path)
        self.address, self.messages, self.requests = path.as_uri(), [], []
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: self.messages.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(self.address)

    def check(self):
        """Check that the console is empty and nothing but the page was requested."""
        assert self.messages == []
        others = [url for url in self.requests if not url.startswith(("data:", "blob:"))]
        assert others == [self.address]


# A page takes seconds to open, so tests share visits; none relies on the state another left.
VISITS = {}


@pytest.fixture(scope="module")
def visit(browser, digits_report, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")

    def opened(name):
        if name not in VISITS:
            report = {"hostile": hostile_report, "demo": small_demo}.get(
                name, lambda: digits_report
            )()
            phone = {"viewport": PHONE, "color_scheme": "dark", "has_touch": True}
            context = phone if name == "phone" else {"viewport": WIDE, "color_scheme": "light"}
            VISITS[name] = Visit(browser, report, folder / f"{name}.html", **context)
        return VISITS[name].page

    yield opened
    while VISITS:
        VISITS.popitem()[1].context.close()


@pytest.fixture(autouse=True)
def quiet():
    """Whatever a test does, the console stays empty and nothing is requested."""
    yield
    for one in VISITS.values():
        one.check()


@pytest.fixture
def digits_page(visit):
    return visit("digits")


@pytest.fixture
def hostile_page(visit):
    return visit("hostile")


def hostile_report():
    """Names and labels that look like code; one true component; 20 points of 200 rows."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((400, 1))
    X, Y = (np.hstack([shared, rng.standard_normal((400, 3))]) for _ in range(2))
    frame = pd.DataFrame(X, columns=[f"{j}{HOSTILE}" for j in range(4)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("knoi.report.measure.POINTS", 20)
        return model_report(
            LinearCCA(3).fit(frame[:200], Y[:200]),
            frame[:200],
            Y[:200],
            test=(frame[200:], Y[200:]),
            labels=np.resize(HOSTILE_LABELS, 200),
            title=HOSTILE,
            command=HOSTILE,
        )


def small_demo():
    return demo_report(run_demo(500))


def points(page, plot):
    """Positions of the points of the first trace."""
    return (
        page.locator(f"#{plot} .scatterlayer .trace")
        .first.locator(".points path")
        .evaluate_all("points => points.map((point) => point.getAttribute('transform'))")
    )


def matches(page):
    rows = page.locator("#retrieval-matches li").evaluate_all("all => all.map(l => +l.dataset.row)")
    return [int(row) for row in rows]


def test_all_plots_are_drawn(digits_page):
    for plot in PLOTS:
        assert digits_page.locator(f"#{plot} .main-svg").count() > 0
    assert digits_page.locator("#scatter .points path").count() == 300
    assert digits_page.locator("#loadings-X .heatmaplayer image").count() == 1
    names = digits_page.locator("#scatter .legendtext").all_text_contents()
    assert names == [*"0123456789"]
    # A plot can be saved as an image.
    digits_page.locator("#recall").hover()
    with digits_page.expect_download() as download:
        digits_page.locator("#recall .modebar-btn").first.click()
    assert download.value.suggested_filename.endswith(".png")


def test_every_choice_changes_its_plot(digits_page):
    for picker in ("scatter-x", "scatter-y"):
        before = points(digits_page, "scatter")
        digits_page.select_option(f"#{picker}", "1:3")
        assert points(digits_page, "scatter") != before
        title = digits_page.locator(f"#scatter .{picker[-1]}title").text_content()
        assert title == "Y, component 4"
    # An axis against itself.
    assert digits_page.locator("#scatter-caption").text_content().endswith(": 1.000")
    image = digits_page.locator("#loadings-X .heatmaplayer image")
    before = image.get_attribute("href") or image.get_attribute("xlink:href")
    digits_page.select_option("#component", "2")
    after = image.get_attribute("href") or image.get_attribute("xlink:href")
    assert after != before
    before = points(digits_page, "curve")
    title = digits_page.locator("#curve .xtitle")
    assert title.text_content() == "samples"
    digits_page.get_by_text("seconds", exact=True).first.click()
    assert title.text_content() == "seconds"
    assert points(digits_page, "curve") != before


def test_a_chosen_row_shows_its_nearest(digits_page, digits_report):
    data = page_data(digits_report.html())
    rows = data["rows"]
    nearest = [unpack(matches).astype(int) for matches in data["retrieval"]["matches"]]
    expected = [[[rows[k] for k in row] for row in one] for one in nearest]
    digits_page.fill("#row", "5")
    digits_page.press("#row", "Enter")
    assert matches(digits_page) == expected[0][5]
    ring = digits_page.locator("#scatter .shapelayer path")
    before = ring.get_attribute("d")
    digits_page.click("#row-next")
    assert ring.get_attribute("d") != before
    assert matches(digits_page) == expected[0][6]
    digits_page.get_by_text("Y to X", exact=True).first.click()
    assert matches(digits_page) == expected[1][6]
    digits_page.click("#row-previous")
    assert matches(digits_page) == expected[1][5]
    digits_page.get_by_text("X to Y", exact=True).first.click()
    digits_page.fill("#row", "0")
    digits_page.press("#row", "Enter")
    digits_page.click("#row-previous")
    assert matches(digits_page) == expected[0][299]
    digits_page.click("#row-random")
    picked = rows.index(int(digits_page.input_value("#row")))
    assert matches(digits_page) == expected[0][picked]


def test_matches_are_marked_in_words(digits_page, digits_report, digits):
    data = page_data(digits_report.html())
    ranks = unpack(data["retrieval"]["ranks"][0])[:, 0] / 2
    index = int(np.flatnonzero((ranks > 1) & (ranks <= 10))[0])
    digits_page.check("input[name=direction][value='0']", force=True)
    digits_page.fill("#row", str(data["rows"][index]))
    digits_page.press("#row", "Enter")
    found = unpack(data["retrieval"]["matches"][0])[index].astype(int)
    labels = digits.labels_test
    signs = [
        "✓ partner" if k == index else "≈ same label" if labels[k] == labels[index] else "✗ other"
        for k in found
    ]
    assert "✓ partner" in signs
    assert digits_page.locator("#retrieval-matches strong").all_text_contents() == signs
    summary = digits_page.locator("#retrieval-summary").text_content()
    assert f"its partner has rank {ranks[index]:g} among 300 rows of Y" in summary
    assert digits_page.locator("#retrieval-matches .image").count() == 10


def test_a_point_shows_its_image_and_is_chosen_by_a_click(digits_page):
    point = digits_page.locator("#scatter .points path").nth(20)
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    tip = digits_page.locator(".tip")
    tip.wait_for(state="visible")
    assert tip.locator(".image").count() == 2
    row = tip.locator("span").first.text_content()
    assert tip.locator("span").nth(1).text_content().startswith("label ")
    box = point.bounding_box()
    digits_page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    digits_page.wait_for_function(
        "row => `row ${document.getElementById('row').value}` === row", arg=row
    )
    assert row == f"row {digits_page.input_value('#row')}"


def test_held_out_points_are_hollow_unless_significant(hostile_page):
    trace = hostile_page.locator("#correlations .scatterlayer .trace").last
    fills = trace.locator(".points path").evaluate_all(
        "all => all.map((point) => point.style.fill)"
    )
    significant = hostile_report().data["correlations"]["series"][1]["significant"]
    assert significant[0]
    assert not all(significant)
    assert [fill == fills[0] for fill in fills] == significant


def test_every_control_is_reached_by_tab(digits_page):
    digits_page.evaluate("document.activeElement.blur()")
    digits_page.locator("h1").click()
    seen = []
    for _ in range(60):
        digits_page.keyboard.press("Tab")
        seen.append(
            digits_page.evaluate("document.activeElement.id || document.activeElement.name")
        )
    order = ["curve-by", "scatter-x", "scatter-y", "direction"]
    order += ["row-previous", "row", "row-next", "row-random", "component"]
    assert [name for name in dict.fromkeys(seen) if name in order] == order
    unnamed = digits_page.evaluate("""
        [...document.querySelectorAll(".controls :is(select, input, button)")].filter(
            (one) => !one.labels?.length && !one.getAttribute("aria-label")).length""")
    assert unnamed == 0
    digits_page.focus("#row")
    assert digits_page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_rows_that_are_not_shown_are_skipped(hostile_page):
    rows = hostile_report().data["rows"]
    assert len(rows) == 20
    hostile_page.fill("#row", "0")
    hostile_page.press("#row", "Enter")
    for row in rows[1:4]:
        hostile_page.press("#row", "ArrowUp")
        assert hostile_page.input_value("#row") == str(row)
    for row in rows[2::-1]:
        hostile_page.press("#row", "ArrowDown")
        assert hostile_page.input_value("#row") == str(row)
    for typed, shown in (("99999", rows[-1]), ("0", rows[0])):
        hostile_page.fill("#row", typed)
        hostile_page.press("#row", "Enter")
        assert hostile_page.input_value("#row") == str(shown)


def test_hostile_text_is_text(hostile_page):
    assert hostile_page.locator("h1").text_content() == HOSTILE
    assert hostile_page.locator("pre").text_content() == HOSTILE
    legend = hostile_page.locator("#scatter .legendtext").all_text_contents()
    assert sorted(legend) == sorted(HOSTILE_LABELS)
    tick = hostile_page.locator("#loadings-X .ytick text").first.text_content()
    assert tick.startswith("0</script><img")
    assert hostile_page.locator("img, b, svg a, main script").count() == 0


def test_a_phone_shows_everything_and_dark_is_dark(visit):
    page = visit("phone")
    for width in (375, 320):
        page.set_viewport_size({"width": width, "height": 700})
        page.wait_for_function(
            "() => document.querySelector('#recall .main-svg').width.baseVal.value"
            " < document.querySelector('#recall').clientWidth + 1"
        )
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(overflow) == 0
        cut_off = page.evaluate("""[...document.querySelectorAll(
            "select, button, input[type=number], .plot, li")].filter((one) =>
            one.offsetParent && one.getBoundingClientRect().right > innerWidth).length""")
        assert cut_off == 0
    look = """() => {
        const style = (selector) => getComputedStyle(document.querySelector(selector));
        return [style("body").backgroundColor, style("#correlations .xtitle").fill];
    }"""
    dark = page.evaluate(look)
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"before => ({look})()[1] !== before", arg=dark[1])
    light = page.evaluate(look)
    brightness = [[sum(map(int, c[4:-1].split(","))) for c in one] for one in (dark, light)]
    (dark_page, dark_text), (light_page, light_text) = brightness
    assert dark_page < 150 < 600 < dark_text
    assert light_text < 150 < 600 < light_page


def test_print_is_white_and_the_screen_is_restored(digits_page):
    look = """() => [document.querySelector("#correlations .main-svg").getAttribute("width"),
        getComputedStyle(document.querySelector("#correlations .xtitle")).fill]"""
    light = digits_page.evaluate(look)
    digits_page.emulate_media(color_scheme="dark")
    digits_page.wait_for_function(f"before => ({look})()[1] !== before", arg=light[1])
    dark = digits_page.evaluate(look)
    digits_page.evaluate(f"addEventListener('beforeprint', () => {{ window.paper = ({look})(); }})")
    assert digits_page.pdf()[:5] == b"%PDF-"
    width, ink = digits_page.evaluate("window.paper")
    assert int(width) <= 660 < int(light[0])
    assert ink == light[1]
    digits_page.wait_for_function(f"before => ({look})().join() === before.join()", arg=dark)
    digits_page.emulate_media(color_scheme="light")
    digits_page.wait_for_function(f"before => ({look})().join() === before.join()", arg=light)


def test_the_demo_draws_the_same_charts(visit):
    page = visit("demo")
    names = ["LinearCCA", "FourierCCA", "NystromCCA", "KNOI"]
    for plot, legend in (("correlations", names), ("recall", [*names, "chance"])):
        assert page.locator(f"#{plot} .legendtext").all_text_contents() == legend
        lines = page.locator(f"#{plot} .scatterlayer .trace path.js-line")
        looks = lines.evaluate_all("all => all.map((one) => one.style.stroke)")
        assert len(set(looks)) == len(legend)
    assert len(points(page, "correlations")) == 20
    broken = "[...document.images].filter((image) => image.naturalWidth !== 16).length"
    assert page.evaluate(broken) == 0
