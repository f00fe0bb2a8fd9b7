"""The documentation: its code runs and gives what it says, links work, nothing is left out."""

import re
import shlex
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import typer

import knoi
import mkdocs_hooks
from knoi.cli import main
from knoi.cli.program import app
from knoi.kernels import KERNELS

mpl.use("Agg")
from matplotlib import pyplot as plt

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT / "docs"
DOCUMENTS = sorted([*PROJECT.glob("*.md"), *DOCS.glob("**/*.md"), PROJECT / "benchmarks/README.md"])
FENCED = re.compile(r"^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
# `print(...)  # about 4.5, of 5`: what follows "about" is checked.
ABOUT = re.compile(r"^( *)print\((.*)\)  # about (-?\d+(?:\.\d+)?).*$", re.MULTILINE)


def text_of(document):
    return document.read_text(encoding="utf-8")


def blocks(document, kind):
    return [match["code"] for match in FENCED.finditer(text_of(document)) if match["kind"] == kind]


def code_of(document):
    """Everything set as code, in blocks and in lines."""
    text = text_of(document)
    spans = re.findall(r"`([^`\n]+)`", FENCED.sub("", text))
    return "\n".join([*spans, *(match["code"] for match in FENCED.finditer(text))])


def about(value, text):
    """Within a tenth, or what rounding to the digits given hides."""
    digits = len(text.partition(".")[2])
    np.testing.assert_allclose(value, float(text), rtol=0.1, atol=0.6 * 10.0**-digits)


def run(document):
    names = {"_about": about}
    for number, code in enumerate(blocks(document, "python"), 1):
        code = ABOUT.sub(r"\1_about(\2, '\3')", code)
        exec(compile(code, f"{document.name}, block {number}", "exec"), names)


# Examples include scripts, which have tests of their own; the command line is run below.
WITH_CODE = [
    document
    for document in DOCUMENTS
    if blocks(document, "python") and document.stem not in ("examples", "command_line")
]


@pytest.mark.parametrize("document", WITH_CODE, ids=lambda path: path.stem)
def test_code_runs_and_gives_what_it_says(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(document)
    plt.close("all")


def test_the_session_of_the_command_line_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = DOCS / "command_line.md"
    run(page)
    session = "".join(blocks(page, "console")).splitlines()
    assert len(session) > 5
    for line in session:
        prompt, program, *arguments = shlex.split(line)
        assert (prompt, program) == ("$", "knoi")
        assert main(arguments) == 0, f"{line}\n{capsys.readouterr().err}"
    written = {path.name for path in tmp_path.iterdir()}
    assert {"halves.knoi", "report.html", "test.html", "Z.npz"} <= written


def anchors(document):
    """The anchors of headings, and of what mkdocstrings describes."""
    text = text_of(document)
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE))


def test_links_lead_somewhere():
    broken = []
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", text_of(document))):
            if target.startswith(("https://", "http://")):
                continue
            path, _, anchor = target.partition("#")
            file = document.parent / path if path else document
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{document.name}: {target}")
    assert broken == []


@pytest.mark.parametrize("name", ["docs/architecture.md", "benchmarks/README.md"])
def test_files_that_are_named_exist(name):
    named = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", FENCED.sub("", text_of(PROJECT / name)))
    places = (PROJECT, PROJECT / "src", PROJECT / "src/knoi", PROJECT / "benchmarks")
    assert [one for one in named if not any((at / one).exists() for at in places)] == []


def test_the_site_works_from_disk(browser, tmp_path, monkeypatch):
    """Pages opened as files load nothing from the network, can be searched, and fit the screen."""
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    subprocess.run(command, cwd=PROJECT, check=True)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    for name in ("benchmarks", "feature_maps", "api/estimators", "index"):
        page.goto((tmp_path / f"{name}.html").as_uri())
        too_wide = "t => t.scrollWidth > document.querySelector('.md-content').clientWidth"
        tables = "[...document.querySelectorAll('.md-typeset table')]"
        assert not page.evaluate(f"{tables}.some({too_wide})"), name
    page.click("input.md-search__input")
    page.keyboard.type("landmarks")
    page.wait_for_selector(".md-search-result__item")
    assert "landmarks" in page.inner_text(".md-search-result__list").lower()
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    page.close()


def test_every_command_kernel_and_extra_is_documented():
    named = re.findall(r"^\| `knoi (\w+)` \|", text_of(DOCS / "command_line.md"), re.MULTILINE)
    assert sorted(named) == sorted(typer.main.get_command(app).commands)
    notation = code_of(DOCS / "notation.md")
    for name, kernel in KERNELS.items():
        assert name in notation.splitlines()
        assert re.search(rf"^{kernel.__name__}\b", notation, re.MULTILINE)
    project = tomllib.loads(text_of(PROJECT / "pyproject.toml"))["project"]
    extras = set(project["optional-dependencies"]) - {"test", "docs"}
    everything = "\n".join(map(text_of, DOCUMENTS))
    assert [extra for extra in extras if not re.search(rf"\[.*\b{extra}\b.*\]", everything)] == []


def test_the_api_pages_describe_every_public_name():
    pages = "\n".join(text_of(path) for path in (DOCS / "api").glob("*.md"))
    shown = []
    for name in re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE):
        module, _, own = name.rpartition(".")
        shown.append(getattr(import_module(module), own))
    public = [getattr(knoi, name) for name in knoi.__all__]
    errors = vars(import_module("knoi.exceptions")).values()
    public += [one for one in errors if isinstance(one, type) and issubclass(one, Exception)]
    for module in ("knoi.metrics", "knoi.datasets", "knoi.callbacks"):
        loaded = import_module(module)
        public += [getattr(loaded, name) for name in loaded.__all__]
    kernels = import_module("knoi.kernels")
    public += [*kernels.KERNELS.values(), kernels.SumKernel, kernels.ProductKernel]
    features = import_module("knoi.features")
    public += [getattr(features, name) for name in features.__all__ if name != "map_from_state"]
    assert [one.__name__ for one in public if one not in shown] == []


@pytest.mark.parametrize(
    ("tex", "expected"),
    [
        (r"S_{yy}^{-1/2}", "<msubsup><mi>S</mi>"),
        (r"\frac{1}{b}", "<mfrac><mrow><mn>1</mn></mrow><mrow><mi>b</mi></mrow></mfrac>"),
        (r"\mathrm{tr}(U)", '<mi mathvariant="normal">tr</mi><mo stretchy="false">(</mo>'),
        (r"\phi \leftarrow 2 < 3", "<mi>φ</mi><mo>←</mo><mn>2</mn><mo>&lt;</mo>"),
        ("x' - b", "<msup><mi>x</mi><mo>′</mo></msup><mo>−</mo>"),
        (r"\sqrt{x}\,\tilde{U}", "<msqrt><mrow><mi>x</mi></mrow></msqrt><mspace"),
        (r"\sum_i", "<msub>"),
    ],
)
def test_formulas_become_mathml(tex, expected):
    assert expected in mkdocs_hooks.mathml(tex)


@pytest.mark.parametrize("tex", [r"\wat x", "x_", "{x"])
def test_an_unknown_formula_stops_the_build(tex):
    with pytest.raises(ValueError, match=r"is not known|ends too early"):
        mkdocs_hooks.mathml(tex)


def test_formulas_are_found_in_pages_and_docstrings():
    page = '<p>So <span class="arithmatex">\\(a &lt; b\\)</span>.</p>'
    assert mkdocs_hooks.on_page_content(page).startswith("<p>So <math><mrow><mi>a</mi><mo>&lt;")
    block = '<div class="arithmatex">\\[\\sum_i\\]</div>'
    assert mkdocs_hooks.on_page_content(block).startswith('<math display="block"><mrow><munder>')
    docstring = "Of :math:`x^2`:\n\n    .. math:: y_i\n"
    assert mkdocs_hooks.as_page_formulas(docstring) == "Of $x^2$:\n\n    $$y_i$$\n"


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("faq.md", "[notes](../benchmarks/README.md#a)", "notes (`benchmarks/README.md`)"),
        ("faq.md", "[LICENSE](../LICENSE)", "`LICENSE`"),
        ("api/data.md", "[Notation](../notation.md#reg)", "[Notation](../notation.md#reg)"),
        ("api/data.md", "[code](../../src/knoi)", "code (`src/knoi`)"),
    ],
)
def test_links_out_of_the_site_name_their_file(page, text, expected):
    file = SimpleNamespace(file=SimpleNamespace(src_uri=page))
    assert mkdocs_hooks.on_page_markdown(text, file) == expected
