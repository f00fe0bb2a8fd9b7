"""Generated parts of the documents are current: tables of results, pictures, path of a fit."""

import pytest

from benchmarks import architecture, fit_path, pictures
from benchmarks.paper import tables as paper
from benchmarks.tables import main, refreshed


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


def cell_at(method, *points):
    """A cell of Table 1 with these (minutes, refit) points, the last the whole."""
    whole = [{"seconds": 60 * when, "refit": refit} for when, refit in points]
    return {"method": method, "subsets": whole[:-1], **whole[-1]}


def test_the_smallest_lead_at_any_time_from_two_minutes_on():
    ours = cell_at("knoi-nystrom", (1.5, 40.0), (10.0, 46.0))
    assert paper.smallest_lead([ours]) is None
    # What was reached before two minutes still counts at two.
    other = cell_at("nkcca", (1.0, 41.0), (1.9, 38.0), (9.0, 39.5))
    assert paper.smallest_lead([ours, other]) == (-1.0, 2.0)
    other = cell_at("nkcca", (1.9, 38.0), (9.0, 39.5), (11.0, 45.0))
    assert paper.smallest_lead([ours, other]) == (0.5, 9.0)


def test_labels_of_a_picture_stay_apart():
    assert pictures.spread([1.0, 1.1, 5.0, 5.0], 0.5) == [1.0, 1.5, 5.0, 5.5]


def test_the_path_of_a_fit_is_recorded():
    fitted, *_, learned = fit_path.paths(n_jobs=1).values()
    (first, *_), functions = zip(*fitted.items(), strict=True)
    assert first.startswith("estimators/")
    assert functions[0][0].endswith(".fit")
    assert {"solvers/loop", "solvers/noi", "data/open"} <= set(fitted)
    assert len(fitted) <= 26  # a reader follows it
    assert set(learned) == {"features/metric", "features/composite"}


def test_every_module_says_its_role():
    assert [line for line in architecture.modules().splitlines() if line.endswith("|  |")] == []
