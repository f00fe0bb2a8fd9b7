"""`knoi score`, `knoi retrieve`, `knoi info`: the library's numbers, on screen and as JSON."""

import csv
import hashlib
import io
import re
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

import knoi
from knoi.metrics import canonical_correlations, permutation_test, retrieval_ranks, top_matches

SCORE = "score linear.knoi X_test.npy Y_test.npy"
RETRIEVE = "retrieve linear.knoi X_test.npy Y_test.npy"


@pytest.fixture
def variates(run):
    return knoi.load("linear.knoi").transform(np.load("X_test.npy"), np.load("Y_test.npy"))


class TestScore:
    def test_correlations_and_p_values(self, run, run_json, variates):
        found = run_json(f"{SCORE} --permutations 19 --seed 3")
        test = permutation_test(*variates, 19, 3)
        assert found["total_correlation"] == pytest.approx(test.correlations.sum())
        assert found["correlations"] == pytest.approx(test.correlations)
        assert found["correlations_refit"] == pytest.approx(canonical_correlations(*variates))
        assert found["p_values"] == test.p_values.tolist()
        assert found["corrected_p_values"] == test.corrected_p_values.tolist()
        assert found["total_p_value"] == test.total_p_value
        assert (found["rows"], found["permutations"]) == (200, 19)
        shown = run(f"{SCORE} --permutations 19 --seed 3").out
        rows = re.findall(r"^ +(\d) +([\d.]+) +([\d.]+) +([\d.]+) *$", shown, re.M)
        expected = [(str(i + 1), f"{rho:.3f}") for i, rho in enumerate(test.correlations)]
        assert rows == [(*row, "0.05", "0.05") for row in expected]
        assert "200 pairs" in shown
        assert "p_values" not in run_json(SCORE)
        done = run(SCORE)
        assert "corrected" not in done.out
        assert "--permutations" in done.err


class TestRetrieve:
    @pytest.mark.parametrize(
        ("source", "similarity"), [("x", "cosine"), ("y", "euclidean"), ("x", "dot")]
    )
    def test_the_nearest_rows_of_the_other_view(self, run_json, variates, source, similarity):
        options = f"--rows 7,150-152,0 --from {source} --similarity {similarity} --top 3"
        found = run_json(f"{RETRIEVE} {options}")
        rows = [7, 150, 151, 152, 0]
        Z, other = variates if source == "x" else variates[::-1]
        indices, values = top_matches(Z[rows], other, 3, similarity=similarity)
        direction = "x_to_y" if source == "x" else "y_to_x"
        ranks = retrieval_ranks(*variates, similarity=similarity, direction=direction)
        for query, row, index, value in zip(found["queries"], rows, indices, values, strict=True):
            assert (query["row"], query["rank_of_partner"]) == (row, ranks[row])
            assert [match["row"] for match in query["matches"]] == index.tolist()
            assert [match["similarity"] for match in query["matches"]] == pytest.approx(value)

    def test_the_partner_is_marked(self, run, variates):
        row = int(np.argmin(retrieval_ranks(*variates)))
        shown = run(f"{RETRIEVE} --rows {row} --top 2").out
        assert re.search(rf"^ +{row} +1 +{row} ✓ +\d+ *$", shown, re.M), shown

    def test_csv_has_one_line_per_match(self, run, variates):
        lines = list(csv.reader(io.StringIO(run(f"{RETRIEVE} --rows 4,9 --top 2 --csv").out)))
        assert lines.pop(0) == ["row", "place", "match", "similarity"]
        indices, values = top_matches(variates[0][[4, 9]], variates[1], 2)
        expected = [("4", "1"), ("4", "2"), ("9", "1"), ("9", "2")]
        assert [(row, place) for row, place, *_ in lines] == expected
        assert [int(line[2]) for line in lines] == indices.ravel().tolist()
        assert [float(line[3]) for line in lines] == pytest.approx(values.ravel(), rel=1e-5)

    def test_views_of_different_lengths_have_no_partners(self, run_json, run):
        views = "retrieve linear.knoi X_test.npy Y.npy"
        (query,) = run_json(f"{views} --rows 0 --top 999")["queries"]
        assert query["rank_of_partner"] is None
        assert len(query["matches"]) == 400  # every row
        assert "✓" not in run(f"{views} --rows 0-50").out

    def test_texts_are_shown_instead_of_numbers(self, run, run_json, error_line):
        Path("x.txt").write_text("".join(f"left {i}\n" if i != 3 else "\n" for i in range(200)))
        hostile = "[red]right\x1b[2J " + "x" * 99
        frame = pd.DataFrame({"title": [f"{hostile} {i}" for i in range(200)]})
        frame.to_csv("y.csv", index=False)
        command = f"{RETRIEVE} --rows 7,3 --top 2 --texts x.txt --texts y.csv:title"
        query, blank = run_json(command)["queries"]
        assert (query["text"], blank["text"]) == ("left 7", "")
        match = query["matches"][0]
        assert match["text"] == f"{hostile} {match['row']}"
        shown = run(command).out
        assert "left 7" in shown
        assert "[red]right [2J" in shown
        assert "\x1b" not in shown
        lines = list(csv.DictReader(io.StringIO(run(f"{command} --csv").out)))
        assert (lines[0]["text"], lines[0]["text_of_match"]) == ("left 7", match["text"])
        # From Y, the texts change places; one file is for both views.
        (query,) = run_json(f"{RETRIEVE} --rows 7 --from y --texts x.txt")["queries"]
        assert query["text"] == "left 7"
        line = error_line(1, "retrieve linear.knoi X_test.npy Y.npy --rows 1 --texts x.txt")
        assert line == "--texts ('x.txt') has 200 texts, but Y has 400 rows. Give one text per row."


class TestInfo:
    def test_the_screen_shows_what_the_file_holds(self, run, monkeypatch):
        monkeypatch.setenv("COLUMNS", "200")
        model = knoi.NystromCCA(
            n_components=3, rank=50, width=(2.0, "median"), metric=None, scale=None, random_state=7
        )
        model.fit(np.load("X.npy"), np.load("Y.npy")).save("m.knoi")
        done = run("info m.knoi")
        for shown in (
            "NystromCCA",
            f"knoi {knoi.__version__}, format ",
            "rank=50",
            "width=(2.0, 'median')",
            "6 columns → 50 features → 3 components",
            "4 columns → 50 features → 3 components",
            "RBF(width=2.0)",
            ", ".join(f"{rho:.3f}" for rho in model.correlations_),
        ):
            assert shown in done.out

    def test_json_holds_what_the_file_does(self, run, run_json):
        found, model = run_json("info linear.knoi"), knoi.load("linear.knoi")
        assert found["method"] == "LinearCCA"
        assert found["parameters"]["n_components"] == found["components"] == 2
        assert found["views"]["x"]["columns"] == 6
        assert found["in_sample"]["correlations"] == model.correlations_.tolist()
        assert found["views"]["x"]["reg"] == model.reg_[0]
        assert run("fit X.npy Y.npy -o m.knoi --rank 20 --epochs 2 -q").code == 0
        assert run_json("info m.knoi")["n_samples_seen_"] == 800
        shown = run("info m.knoi").out
        assert re.search(r"training +800 samples in [\d.]+ s, stopped by: epochs", shown)

    def test_the_file_is_read_and_hashed_once(self, run, monkeypatch):
        sha256 = Mock(wraps=hashlib.sha256)
        monkeypatch.setattr("hashlib.sha256", sha256)
        for command in ("info linear.knoi", "info linear.knoi --json"):
            sha256.reset_mock()
            assert run(command).code == 0
            assert sha256.call_count == 1
