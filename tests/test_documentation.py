"""The pages of the documentation: their code runs and gives what it says, nothing is left out."""

import re
import shlex
from importlib import import_module
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import typer

import knoi
import mkdocs_hooks
from knoi.cli import main
from knoi.cli.program import app
from tests.test_docs import PROJECT, blocks

mpl.use("Agg")
from matplotlib import pyplot as plt

DOCS = PROJECT / "docs"
PAGES = [
    "index",
    "tutorial",
    "out_of_core",
    "notebooks",
    "migrating",
    "faq",
    "how_it_works",
    "command_line",
]
# `print(...)  # about 4.5, of 5`: what follows "about" is checked.
ABOUT = re.compile(r"^( *)print\((.*)\)  # about (-?\d+(?:\.\d+)?).*$", re.MULTILINE)


def text_of(page):
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def about(value, said):
    """Within a tenth, or what rounding to the digits given hides."""
    digits = len(said.partition(".")[2])
    np.testing.assert_allclose(value, float(said), rtol=0.1, atol=0.6 * 10.0**-digits)


def run(page):
    names = {"_about": about}
    for number, code in enumerate(blocks(text_of(page), "python"), 1):
        code = ABOUT.sub(r"\1_about(\2, '\3')", code)
        exec(compile(code, f"{page}.md, block {number}", "exec"), names)


def test_every_page_with_code_is_run():
    has_code = {path.stem for path in DOCS.glob("*.md") if blocks(path.read_text(), "python")}
    assert has_code - {"examples"} == set(PAGES)  # those have tests of their own


@pytest.mark.parametrize("page", [page for page in PAGES if page != "command_line"])
def test_the_code_of_a_page_runs_and_gives_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page)
    plt.close("all")


def test_a_number_that_is_not_so_is_noticed():
    about(4.4, "4.5")
    for wrong, said in ((3.9, "4.5"), (0.7, "0"), (-4.5, "4.5")):
        with pytest.raises(AssertionError):
            about(wrong, said)


def test_the_session_of_the_command_line_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run("command_line")
    session = "".join(blocks(text_of("command_line"), "console")).splitlines()
    assert len(session) > 5
    for line in session:
        prompt, program, *arguments = shlex.split(line)
        assert (prompt, program) == ("$", "knoi")
        assert main(arguments) == 0, f"{line}\n{capsys.readouterr().err}"
    assert {"halves.knoi", "report.html", "test.html", "Z.npz"} <= {
        p.name for p in tmp_path.iterdir()
    }


def test_the_command_line_page_names_every_command():
    named = re.findall(r"^\| `knoi (\w+)` \|", text_of("command_line"), re.MULTILINE)
    assert sorted(named) == sorted(typer.main.get_command(app).commands)


def described():
    """The objects that the pages of the API describe."""
    pages = [path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md")]
    names = re.findall(r"^::: ([\w.]+)$", "\n".join(pages), re.MULTILINE)
    found = []
    for name in names:
        module, _, own = name.rpartition(".")
        found.append(getattr(import_module(module), own))
    return found


def test_the_api_pages_describe_every_public_name():
    shown = described()
    public = [getattr(knoi, name) for name in knoi.__all__]
    for module in ("metrics", "exceptions"):
        loaded = import_module(f"knoi.{module}")
        names = getattr(loaded, "__all__", [n for n in vars(loaded) if n[0].isupper()])
        public += [getattr(loaded, name) for name in names]
    kernels = import_module("knoi.kernels")
    public += [*kernels.KERNELS.values(), kernels.SumKernel, kernels.ProductKernel]
    features = import_module("knoi.features")
    public += [getattr(features, name) for name in features.__all__ if name != "map_from_state"]
    assert [one.__name__ for one in public if one not in shown] == []


@pytest.mark.parametrize(
    ("tex", "expected"),
    [
        ("x_i", "<msub><mi>x</mi><mi>i</mi></msub>"),
        (r"S_{yy}^{-1/2}", "<msubsup><mi>S</mi>"),
        (r"\frac{1}{b}", "<mfrac><mrow><mn>1</mn></mrow><mrow><mi>b</mi></mrow></mfrac>"),
        (r"\mathrm{tr}(U)", '<mi mathvariant="normal">tr</mi><mo stretchy="false">(</mo>'),
        (r"\phi \leftarrow 2 < 3", "<mi>φ</mi><mo>←</mo><mn>2</mn><mo>&lt;</mo>"),
        (r"a - b", "<mo>−</mo>"),
        ("x'", "<msup><mi>x</mi><mo>′</mo></msup>"),
        (r"\sqrt{x}\,\tilde{U}", "<msqrt><mrow><mi>x</mi></mrow></msqrt><mspace"),
    ],
)
def test_formulas_become_mathml(tex, expected):
    assert expected in mkdocs_hooks.mathml(tex)


def test_limits_go_below_where_there_is_room():
    assert "<munder>" in mkdocs_hooks.mathml(r"\sum_i", block=True)
    assert "<msub>" in mkdocs_hooks.mathml(r"\sum_i")


@pytest.mark.parametrize(
    ("tex", "message"),
    [(r"\wat x", r"\\wat in .* is not known"), ("x_", "ends too early"), ("{x", "ends too early")],
)
def test_a_formula_that_is_not_understood_stops_the_build(tex, message):
    with pytest.raises(ValueError, match=message):
        mkdocs_hooks.mathml(tex)


def test_formulas_are_found_in_pages_and_docstrings():
    page = '<p>So <span class="arithmatex">\\(a &lt; b\\)</span>.</p>'
    assert mkdocs_hooks.on_page_content(page).startswith("<p>So <math><mrow><mi>a</mi><mo>&lt;")
    block = '<div class="arithmatex">\\[x\\]</div>'
    assert mkdocs_hooks.on_page_content(block).startswith('<math display="block">')
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
