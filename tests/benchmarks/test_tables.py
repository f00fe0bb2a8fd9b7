"""Generated parts of the documents: markers, tables of results, the path of a fit."""

import json

import pytest

from benchmarks import architecture, fit_path, pictures
from benchmarks.features import accuracy
from benchmarks.paper import tables as paper
from benchmarks.speed import tables as speed
from benchmarks.tables import main, refreshed

ORIGIN = {"date": "2024-05-06T07:08:09+00:00", "commit": "abc1234", "processor": "Chip", "cores": 2}
LATER = {**ORIGIN, "date": "2024-05-09T00:00:00+00:00", "commit": "def5678+"}


@pytest.fixture
def store(tmp_path):
    """Write a result file and return its folder."""

    def write(name, cells):
        cells = {key: {"origin": ORIGIN, **cell} for key, cell in cells.items()}
        (tmp_path / f"{name}.json").write_text(json.dumps({"cells": cells}))
        return tmp_path

    return write


def rows_of(text):
    """The cells below the heading, row by row, and the last line."""
    lines = text.splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1
    return rows[2:], lines[-1]


def test_the_documents_are_current(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_outdated_parts_are_noticed_and_rewritten(tmp_path, capsys):
    readme = tmp_path / "README.md"
    readme.write_text("# A\n\n<!-- table:one -->\nold\n<!-- /table -->\n\ntext\n")
    before = readme.read_text()
    given = {"project": tmp_path, "results": tmp_path, "tables": {"one": lambda _: "new\n"}}
    assert main(["--check"], **given) == 1
    assert readme.read_text() == before
    assert capsys.readouterr().out == "README.md is out of date\nRun: python -m benchmarks.tables\n"
    assert main([], **given) == 0
    assert readme.read_text() == before.replace("old", "new")
    assert main(["--check"], **given) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table:heights -->\n<!-- /table -->\n", "There is no table 'heights' to generate."),
        ("<!-- table:one -->\n", "do not pair"),
        ("<!-- table:one -->\n<!-- table:one -->\n<!-- /table -->\n", "'one' is not closed"),
    ],
)
def test_wrong_markers_are_errors(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        refreshed(text, tmp_path, {"one": lambda _: ""})


def test_published_numbers_beside_ours(store):
    results = store(
        "lopez_paz",
        {
            "linear rank=0 seed=0 width=median": {"fitted": 27.5, "reg": 0.0},
            "fourier rank=1000 seed=0 width=median/sqrt2": {"by_reg": {"1e-05": {"fitted": 36.0}}},
            "fourier rank=1000 seed=1 width=median/sqrt2": {"by_reg": {"1e-05": {"fitted": 37.0}}},
            "fourier rank=1000 seed=0 width=median": {"fitted": 30.0, "reg": 1e-6},
            "fourier rank=1000 seed=1 width=median": {
                "fitted": 31.0,
                "reg": 1e-5,
                "origin": LATER,
            },
        },
    )
    rows, last = rows_of(paper.mnist_halves(results))
    assert rows == [
        ["LinearCCA", "–", "28.0", "27.50", "27.50", "0"],
        ["FourierCCA", "1000", "36.31", "36.50", "30.50", "1e-06, 1e-05"],
    ]
    assert last == (
        "Measured by `python -m benchmarks.paper.lopez_paz` on Chip, 2 cores; "
        "2024-05-06 to 2024-05-09; commit `abc1234`, `def5678+`."
    )


def test_memory_in_order_of_method_rank_and_budget(store):
    def cell(peak, budget):
        return {"peak_bytes": peak * 2**20, "budget_bytes": budget * 2**20}

    results = store(
        "memory",
        {
            "FourierCCA rank=4096 rows=20000 columns=392 budget=1.5GiB": cell(768, 1536),
            "FourierCCA rank=512 rows=50000 columns=392 budget=384MiB": cell(288, 384),
            "LinearCCA rows=5000 columns=9 budget=1GiB": cell(64, 1024),
            "LinearCCA rows=5000 columns=9 budget=48MiB": cell(60, 48),
        },
    )
    rows, _ = rows_of(speed.memory(results))
    assert rows == [
        ["`LinearCCA`, 2 × 5,000 × 9", "48 MiB", "60 MiB", "1.25"],
        ["`LinearCCA`, 2 × 5,000 × 9", "1024 MiB", "64 MiB", "0.06"],
        ["`FourierCCA`, rank 512, 2 × 50,000 × 392", "384 MiB", "288 MiB", "0.75"],
        ["`FourierCCA`, rank 4096, 2 × 20,000 × 392", "1536 MiB", "768 MiB", "0.50"],
    ]


def test_kernel_errors_leave_out_trials(store):
    measured = {
        "by_rank": {"256": {"error": 0.2691}, "512": {"error": 0.05}, "32768": {"error": 0.00063}},
        "slope": -0.524,
    }
    results = store(
        accuracy.NAME,
        {
            accuracy.Series("mnist", "rbf", "fourier").key(): measured,
            accuracy.Series("mnist", "rbf", "qmc").key(): {**measured, "slope": None},
            accuracy.Series("mocha", "rbf", "fourier").key(seeds=1): measured,  # a trial
            accuracy.Series("wikipedia", "chi2", "additive").key(): measured,
        },
    )
    rows, last = rows_of(speed.feature_accuracy(results))
    shown = "27 / – / 0.063, -0.52"
    assert rows == [
        ["`rbf`", '`"fourier"`', shown, "–", "–"],
        ["`rbf`", '`"qmc"`', "27 / – / 0.063", "–", "–"],
    ]
    assert last.endswith("on Chip, 2 cores; 2024-05-06; commit `abc1234`.")
    assert rows_of(speed.histogram_accuracy(results))[0] == [["`chi2`", '`"additive"`', shown]]


def cell_at(method, *points):
    """A cell of Table 1 with these (minutes, refit) points, the last the whole."""
    whole = [{"seconds": 60 * when, "refit": refit} for when, refit in points]
    return {"method": method, "subsets": whole[:-1], **whole[-1], "origin": {"cores": 4}}


def test_the_smallest_lead_at_any_time_from_two_minutes_on():
    ours = cell_at("knoi-nystrom", (1.5, 40.0), (10.0, 46.0))
    assert paper.smallest_lead([ours]) is None
    # What was reached before two minutes still counts at two.
    other = cell_at("nkcca", (1.0, 41.0), (1.9, 38.0), (9.0, 39.5))
    assert paper.smallest_lead([ours, other]) == (-1.0, 2.0)
    other = cell_at("nkcca", (1.9, 38.0), (9.0, 39.5), (11.0, 45.0))
    assert paper.smallest_lead([ours, other]) == (0.5, 9.0)


def test_the_headline_names_the_first_to_pass_the_papers_best(monkeypatch, tmp_path):
    found = [
        cell_at("nkcca", (3.0, 41.0)),
        cell_at("knoi-nystrom", (9.0, 45.5)),
        cell_at("knoi-fourier", (5.0, 45.3)),
    ]
    monkeypatch.setattr(paper, "measured", lambda _: found)
    text = paper.mnist8m_headline(tmp_path)
    assert "gets there in 5.0 minutes on 4 cores" in text
    assert "NKCCA, reaches 41.00 after 3 minutes" in text


def test_labels_of_a_picture_stay_apart():
    assert pictures.spread([1.0, 1.1, 5.0, 5.0], 0.5) == [1.0, 1.5, 5.0, 5.5]


def test_the_path_of_a_fit_is_recorded():
    fitted, *_ = fit_path.paths(n_jobs=1).values()
    (first, *_), functions = zip(*fitted.items(), strict=True)
    assert first.startswith("estimators/")
    assert functions[0][0].endswith(".fit")
    assert {"solvers/loop", "solvers/noi", "data/open"} <= set(fitted)
    assert len(fitted) <= 25  # a reader follows it


def test_every_module_says_its_role():
    assert [line for line in architecture.modules().splitlines() if line.endswith("|  |")] == []
