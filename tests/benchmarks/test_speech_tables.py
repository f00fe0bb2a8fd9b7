"""Tables and the picture of docs/speech.md, from cells that are made up."""

import numpy as np
import pytest

from benchmarks import pictures
from benchmarks.harness import Cells
from benchmarks.paper.speech import NAME
from benchmarks.speech import sphinx, tables
from benchmarks.speech.corpora import synthetic
from benchmarks.speech.recogniser import Errors
from benchmarks.speech.search import bigram
from benchmarks.speech.tables import measured, signed

PHONES = np.random.default_rng(9).integers(20, 40, 60)


def store(results, method, fold, rate, rank=None, kinds=("gmm", "softmax"), **where):
    """A cell in which every acoustic model has about this error rate with 50 features."""
    hard = np.random.default_rng(fold).uniform(0.8, 1.2, 60)
    errors = np.random.default_rng([fold, round(1000 * rate)]).binomial(PHONES, rate * hard)
    sizes = {"0": 0.3} if method == "mfcc" else {"30": 0.4, "50": 0.3, "70": 0.4}
    by_size = {
        size: {"tuning": tuning, "errors": (errors if tuning == 0.3 else 2 * errors).tolist()}
        for size, tuning in sizes.items()
    }
    cell = {
        "corpus": "mocha",
        "protocol": "same",
        "variant": "plain",
        "fold": f"msak0-{fold}",
        "method": method,
        "rank": rank,
        "rates": dict.fromkeys(kinds, by_size),
        "phones": PHONES.tolist(),
        "fit_seconds": 90.0,
        "correlation": {},
        **where,
    }
    if method not in ("mfcc", "pca"):
        one = {"fitted": 30.0 + fold, "refit": 31.0 + fold}
        cell["correlation"] = {"tune": one, "test": one}
    key = "-".join(str(cell[k]) for k in ("protocol", "variant", "fold", "method", "rank"))
    Cells(results / NAME).store(key, cell)
    return Errors.of(errors, PHONES)


@pytest.fixture
def results(tmp_path):
    """MFCC in three folds, PCA in two of them, FKCCA at two ranks in all."""
    for fold in range(3):
        store(tmp_path, "mfcc", fold, 0.36)
        store(tmp_path, "fkcca", fold, 0.30, rank=5000)
        if fold:
            store(tmp_path, "pca", fold, 0.35)
            store(tmp_path, "fkcca", fold, 0.33, rank=200)
    return tmp_path


def test_differences_are_of_the_folds_that_both_have(results):
    found = measured(results)
    value, error = found.difference(("pca", None), ("mfcc", None), "gmm")
    base = Errors.joined(list(found.errors(("mfcc", None), "gmm").values())[1:])
    own = Errors.joined(list(found.errors(("pca", None), "gmm").values()))
    assert value == pytest.approx(100 * (own.rate - base.rate))
    assert error == pytest.approx(100 * own.standard_error_of_difference(base))
    assert found.difference(("pca", None), ("cca", None), "gmm") is None
    assert found.row("fkcca") == ("fkcca", 5000)
    assert found.row("knoi") is None


def test_table_2(results):
    text = tables.table2(results)
    lines = text.splitlines()
    assert lines[0].startswith("| features | folds | GMM | against MFCC | softmax |")
    assert lines[2].startswith("| MFCC | 3 | 3")
    assert lines[3].startswith("| + PCA | 2 |")
    assert lines[4].startswith("| + FKCCA (M = 200) | 2 |")
    assert lines[5].startswith("| + FKCCA (M = 5,000) | 3 |")
    assert "**−" in lines[5]
    assert lines[5].endswith("28.1 |")
    assert "Measured by `python -m benchmarks.paper.speech`" in text


def test_the_other_tables(results):
    assert "FKCCA (M = 5,000) | 31.0 / 32.0" in tables.correlations(results)
    for fold in range(2):
        where = {"protocol": "unseen", "variant": "plain"}
        store(results, "mfcc", fold, 0.6, **where)
        store(results, "pca", fold, 0.6, **where)
        where = {"protocol": "same", "variant": "covariance", "kinds": ("shared", "full")}
        store(results, "mfcc", fold, 0.4, **where)
        store(results, "pca", fold, 0.38, **where)
    assert "| unseen speaker | GMM | " in tables.protocols(results)
    variants = tables.variants(results)
    assert "| other covariances | shared covariance | " in variants
    assert "| as recorded | GMM | " in variants
    store(results, "kpca", 1, 0.45, rank=2000)
    assert "| FKCCA against kernel PCA | **−" in tables.differences(results)


def test_without_results(tmp_path):
    for make in tables.TABLES.values():
        assert make(tmp_path).startswith("Not measured")


def test_signed():
    assert signed((-1.26, 0.3)) == "**−1.3 ± 0.3**"
    assert signed((0.3, 0.2)) == "+0.3 ± 0.2"
    assert signed((0.0, 0.0)) == "+0.0 ± 0.0"
    assert signed(None) == "–"


def test_the_picture(results, tmp_path, monkeypatch):
    monkeypatch.setitem(pictures.DRAWN, "speech", pictures.figure_of_speech)
    pictures.draw("speech", results, tmp_path / "speech.svg")
    text = (tmp_path / "speech.svg").read_text()
    for label in ("+ PCA", "+ FKCCA (M = 5,000)", "GMM, MOCHA", "softmax, MOCHA", "paper, XRMB"):
        assert label in text


def test_what_is_written_for_sphinx(tmp_path):
    corpus = synthetic(n_speakers=1)
    part = corpus.part(np.arange(3))
    (tmp_path / "etc").mkdir()
    sphinx.write_task(tmp_path, corpus, {"train": part})
    raw = (tmp_path / "feat" / "train000.mfc").read_bytes()
    assert np.frombuffer(raw[:4], np.int32)[0] == 39 * part.bounds[1]
    np.testing.assert_array_equal(
        np.frombuffer(raw[4:], np.float32).reshape(-1, 39), part.frames[: part.bounds[1]]
    )
    arpa = (tmp_path / "etc" / "phones.arpa").read_text()
    language = bigram(part.phones(), 9)
    assert f"{language[2, 3] / np.log(10):.5f} P02 P03\n" in arpa
    assert f"{language[9, 1] / np.log(10):.5f} <s> P01\n" in arpa
    first = (tmp_path / "etc" / "phones_train.transcription").read_text().splitlines()[0]
    names = " ".join(f"P{phone:02d}" for phone in part.phones()[0])
    assert first == f"<s> {names} </s> (train000)"
    # Errors of what it found are counted by name; P00 is silence here and left out.
    found = [[f"P{phone:02d}" for phone in phones] for phones in part.phones()]
    assert sphinx.errors_of(corpus, part, found).rate == 0
    found[1].append("P03")
    assert sphinx.errors_of(corpus, part, found).errors.tolist() == [0, 1, 0]
