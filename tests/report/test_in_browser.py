"""The report in a real browser: drawn, offline, used by mouse and keyboard, on any screen."""

import numpy as np
import pandas as pd
import pytest

from knoi import LinearCCA
from knoi.demo import demo_report, run_demo
from knoi.report import model_report
from tests.report.reading import unpack

PLOTS = ("correlations", "curve", "scatter", "recall", "loadings-X", "loadings-Y")

HOSTILE = "</script><img src=x onerror=alert(1)><b>bold</b>"
HOSTILE_LABELS = [HOSTILE, "<a href='javascript:alert(1)'>a</a>", "<b>b</b>"]
WIDE = {"viewport": {"width": 1000, "height": 900}, "color_scheme": "light"}
PHONE = {"viewport": {"width": 375, "height": 700}, "color_scheme": "dark", "has_touch": True}


@pytest.fixture(scope="module")
def problems():
    """Console messages, errors, dialogs, and requests for anything but the page: none."""
    found = []
    yield found
    assert found == []


@pytest.fixture(scope="module")
def visit(browser, problems, tmp_path_factory):
    """Open a report from disk. It takes seconds: tests share pages in any state."""

    def opened(report, **context):
        path = tmp_path_factory.mktemp("page") / "report.html"
        report.write(path)
        page = browser.new_context(**context).new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        allowed = (path.as_uri(), "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(allowed) else problems.append(r.url))
        page.goto(path.as_uri())
        return page

    yield opened
    for context in browser.contexts:
        context.close()


@pytest.fixture(scope="module")
def page(visit, digits_report):
    return visit(digits_report, **WIDE)


@pytest.fixture(scope="module")
def hostile_page(visit, hostile_report):
    return visit(hostile_report, **WIDE)


@pytest.fixture(scope="module")
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
            texts=[[f"{view} {i} {HOSTILE}" for i in range(200)] for view in "xy"],
            title=HOSTILE,
            command=HOSTILE,
        )


def points(page, plot):
    """Positions of the points of the first trace."""
    return (
        page.locator(f"#{plot} .scatterlayer .trace")
        .first.locator(".points path")
        .evaluate_all("points => points.map((point) => point.getAttribute('transform'))")
    )


def go_to(page, row):
    """Type the number of a row."""
    page.fill("#row", str(row))
    page.press("#row", "Enter")


def matches(page):
    rows = page.locator("#retrieval-matches li").evaluate_all("all => all.map(l => +l.dataset.row)")
    return [int(row) for row in rows]


def test_all_plots_are_drawn(page):
    for plot in PLOTS:
        assert page.locator(f"#{plot} .main-svg").count() > 0
    assert page.locator("#scatter .points path").count() == 300
    assert page.locator("#loadings-X .heatmaplayer image").count() == 1
    names = page.locator("#scatter .legendtext").all_text_contents()
    assert names == [*"0123456789"]
    # A plot can be saved as an image.
    page.locator("#recall").hover()
    with page.expect_download() as download:
        page.locator("#recall .modebar-btn").first.click()
    assert download.value.suggested_filename.endswith(".png")


def test_every_choice_changes_its_plot(page):
    for picker in ("scatter-x", "scatter-y"):
        before = points(page, "scatter")
        page.select_option(f"#{picker}", "1:3")
        assert points(page, "scatter") != before
        title = page.locator(f"#scatter .{picker[-1]}title").text_content()
        assert title == "Y, component 4"
    # An axis against itself.
    assert page.locator("#scatter-caption").text_content().endswith(": 1.000")
    image = page.locator("#loadings-X .heatmaplayer image")
    before = image.get_attribute("href") or image.get_attribute("xlink:href")
    page.select_option("#component", "2")
    after = image.get_attribute("href") or image.get_attribute("xlink:href")
    assert after != before
    before = points(page, "curve")
    title = page.locator("#curve .xtitle")
    assert title.text_content() == "samples"
    page.get_by_text("seconds", exact=True).first.click()
    assert title.text_content() == "seconds"
    assert points(page, "curve") != before


def test_a_chosen_row_shows_its_nearest(page, digits_report):
    rows = digits_report.data["rows"]
    nearest = [unpack(one).astype(int) for one in digits_report.data["retrieval"]["matches"]]
    expected = [[[rows[k] for k in row] for row in one] for one in nearest]
    go_to(page, 5)
    assert matches(page) == expected[0][5]
    ring = page.locator("#scatter .shapelayer path")
    before = ring.get_attribute("d")
    page.click("#row-next")
    assert ring.get_attribute("d") != before
    assert matches(page) == expected[0][6]
    page.get_by_text("Y to X", exact=True).first.click()
    assert matches(page) == expected[1][6]
    page.click("#row-previous")
    assert matches(page) == expected[1][5]
    page.get_by_text("X to Y", exact=True).first.click()
    go_to(page, 0)
    page.click("#row-previous")
    assert matches(page) == expected[0][299]
    page.click("#row-random")
    picked = rows.index(int(page.input_value("#row")))
    assert matches(page) == expected[0][picked]


def test_matches_are_marked_in_words(page, digits_report, digits):
    data = digits_report.data
    ranks = unpack(data["retrieval"]["ranks"][0])[:, 0] / 2
    index = int(np.flatnonzero((ranks > 1) & (ranks <= 10))[0])
    page.check("input[name=direction][value='0']", force=True)
    go_to(page, data["rows"][index])
    found = unpack(data["retrieval"]["matches"][0])[index].astype(int)
    labels = digits.labels_test
    signs = [
        "✓ partner" if k == index else "≈ same label" if labels[k] == labels[index] else "✗ other"
        for k in found
    ]
    assert "✓ partner" in signs
    assert page.locator("#retrieval-matches strong").all_text_contents() == signs
    summary = page.locator("#retrieval-summary").text_content()
    assert f"its partner has rank {ranks[index]:g} among 300 rows of Y" in summary
    assert page.locator("#retrieval-matches .image").count() == 10


def test_a_point_shows_its_image_and_is_chosen_by_a_click(page):
    point = page.locator("#scatter .points path").nth(20)
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    tip = page.locator(".tip")
    tip.wait_for(state="visible")
    assert tip.locator(".image").count() == 2
    row = tip.locator("span").first.text_content()
    assert tip.locator("span").nth(1).text_content().startswith("label ")
    box = point.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function("row => `row ${document.getElementById('row').value}` === row", arg=row)
    assert row == f"row {page.input_value('#row')}"


def test_held_out_points_are_hollow_unless_significant(hostile_page, hostile_report):
    trace = hostile_page.locator("#correlations .scatterlayer .trace").last
    fills = trace.locator(".points path").evaluate_all(
        "all => all.map((point) => point.style.fill)"
    )
    significant = hostile_report.data["correlations"]["series"][1]["significant"]
    assert significant[0]
    assert not all(significant)
    assert [fill == fills[0] for fill in fills] == significant


def test_every_control_is_reached_by_tab(page):
    page.evaluate("document.activeElement.blur()")
    page.locator("h1").click()
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.name"))
    order = ["curve-by", "scatter-x", "scatter-y", "direction"]
    order += ["row-previous", "row", "row-next", "row-random", "component"]
    assert [name for name in dict.fromkeys(seen) if name in order] == order
    unnamed = page.evaluate("""
        [...document.querySelectorAll(".controls :is(select, input, button)")].filter(
            (one) => !one.labels?.length && !one.getAttribute("aria-label")).length""")
    assert unnamed == 0
    page.focus("#row")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_rows_that_are_not_shown_are_skipped(hostile_page, hostile_report):
    rows = hostile_report.data["rows"]
    assert len(rows) == 20
    go_to(hostile_page, 0)
    for row in rows[1:4]:
        hostile_page.press("#row", "ArrowUp")
        assert hostile_page.input_value("#row") == str(row)
    for row in rows[2::-1]:
        hostile_page.press("#row", "ArrowDown")
        assert hostile_page.input_value("#row") == str(row)
    for typed, shown in (("99999", rows[-1]), ("0", rows[0])):
        go_to(hostile_page, typed)
        assert hostile_page.input_value("#row") == str(shown)


def test_hostile_text_is_text(hostile_page):
    assert hostile_page.locator("h1").text_content() == HOSTILE
    assert hostile_page.locator("pre").text_content() == HOSTILE
    legend = hostile_page.locator("#scatter .legendtext").all_text_contents()
    assert sorted(legend) == sorted(HOSTILE_LABELS)
    tick = hostile_page.locator("#loadings-X .ytick text").first.text_content()
    assert tick.startswith("0</script><img")
    texts = hostile_page.locator("#retrieval-query .text").all_text_contents()
    row = int(hostile_page.input_value("#row"))
    assert texts == [f"{view} {row} {HOSTILE}" for view in "xy"]
    matches = hostile_page.locator("#retrieval-matches li")
    shown = [match.locator(".text").text_content() for match in matches.all()]
    assert shown == [f"y {match.get_attribute('data-row')} {HOSTILE}" for match in matches.all()]
    hostile_page.locator("#scatter .points path").first.hover(force=True)
    assert hostile_page.locator(".tip .text").count() == 2
    assert hostile_page.locator("img, b, svg a, main script").count() == 0


def test_a_phone_shows_everything_and_dark_is_dark(visit, digits_report):
    page = visit(digits_report, **PHONE)
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


def test_print_is_white_and_the_screen_is_restored(page):
    look = """() => [document.querySelector("#correlations .main-svg").getAttribute("width"),
        getComputedStyle(document.querySelector("#correlations .xtitle")).fill]"""
    light = page.evaluate(look)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"before => ({look})()[1] !== before", arg=light[1])
    dark = page.evaluate(look)
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.paper = ({look})(); }})")
    assert page.pdf()[:5] == b"%PDF-"
    width, ink = page.evaluate("window.paper")
    assert int(width) <= 660 < int(light[0])
    assert ink == light[1]
    page.wait_for_function(f"before => ({look})().join() === before.join()", arg=dark)
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"before => ({look})().join() === before.join()", arg=light)


def test_the_demo_draws_the_same_charts(visit):
    page = visit(demo_report(run_demo(500)), **WIDE)
    names = ["LinearCCA", "FourierCCA", "NystromCCA", "KNOI"]
    for plot, legend in (("correlations", names), ("recall", [*names, "chance"])):
        assert page.locator(f"#{plot} .legendtext").all_text_contents() == legend
        lines = page.locator(f"#{plot} .scatterlayer .trace path.js-line")
        looks = lines.evaluate_all("all => all.map((one) => one.style.stroke)")
        assert len(set(looks)) == len(legend)
    assert len(points(page, "correlations")) == 20
    broken = "[...document.images].filter((image) => image.naturalWidth !== 16).length"
    assert page.evaluate(broken) == 0
