"""The experiment of Table 2 at a small size: corpora, protocols, variants, cells, the command."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.io import savemat

from benchmarks.harness import Cells
from benchmarks.paper.speech import Experiment, chosen, main
from benchmarks.speech import corpora, methods
from benchmarks.speech.corpora import (
    XRMB_FILES,
    XRMB_PARTS,
    check,
    middle,
    mocha,
    normalised,
    synthetic,
    xrmb,
)
from benchmarks.speech.protocols import PROTOCOLS, VARIANTS, prepared, warping
from knoi.exceptions import InputError, KnoiError, SourceNotFoundError


@pytest.fixture(scope="module")
def corpus():
    return synthetic()


# Files of the layout of MOCHA and of XRMB, made from the synthetic corpus.


def write_mocha(folder, corpus, **changed):
    """Speaker 0 as msak0, 1 as fsew0 with labels, 2 as maps0 without."""
    for name, own in zip(("msak0", "fsew0", "maps0"), _speakers(corpus), strict=True):
        rows = corpus.rows(own)
        columns = {
            "mfcc": corpus.mfcc[rows, : corpora.CEPSTRA].astype(np.float16),
            "ema": np.tile(corpus.Y[rows, middle(corpus.Y)], 2)[:, :14],
            "utt": np.repeat(corpus.sentences[own], np.diff(corpus.bounds)[own]) + 1,
            "phone": corpus.labels[rows].astype(np.uint8),
            "phone_names": np.array(["sil", *corpus.phone_names[1:]]),
        }
        if name == "maps0":
            columns |= {"phone": np.full(len(rows), 255, np.uint8), "phone_names": np.array([])}
            columns["ema"] = columns["ema"][:, :12]
        else:
            columns |= changed
        columns = {key: value for key, value in columns.items() if value is not None}
        np.savez(folder / f"mocha_{name}.npz", **columns)


def _speakers(corpus):
    return [np.flatnonzero(corpus.speakers == name) for name in dict.fromkeys(corpus.speakers)]


def write_xrmb(folder, change=lambda variables: None):
    """14 speakers: 8 in the training part, 3 each in the others; files as published."""
    several = synthetic(n_speakers=14, n_sentences=8, n_phones=6)
    several = replace(several, Y=np.tile(several.Y, 2)[:, :112])
    own = _speakers(several)
    variables = {}
    for (X, Y, label, speaker), numbers in zip(
        XRMB_PARTS.values(), (range(8), range(8, 11), range(11, 14)), strict=True
    ):
        utterances = np.concatenate([own[k] for k in numbers])
        rows = several.rows(utterances)
        ids = np.concatenate([np.full(len(several.rows(own[k])), k + 1.0) for k in numbers])
        variables |= {
            X: several.X[rows],
            Y: several.Y[rows],
            label: several.labels[rows, None].astype(float),
            speaker: ids[:, None],
        }
    change(variables)
    first = {name: variables.pop(name) for name in ("X1", "XV1", "XTe1") if name in variables}
    savemat(folder / XRMB_FILES[0], first)
    savemat(folder / XRMB_FILES[1], variables)
    return several


class TestCorpora:
    def test_the_windows_of_a_corpus(self, corpus):
        assert corpus.X.shape[1] == 273
        assert corpus.mfcc.shape[1] == 39
        utterance = corpus.utterance_of_frame
        np.testing.assert_array_equal(corpus.X[5, :39], corpus.mfcc[2])  # three frames before
        # Slopes: of a line through five frames.
        cepstra = corpus.mfcc[10:15, :13]
        slope = np.arange(-2, 3) @ cepstra / 10
        np.testing.assert_allclose(corpus.mfcc[12, 13:26], slope, rtol=1e-4, atol=1e-5)
        assert utterance[-1] + 1 == len(corpus.speakers)

    def test_parts_have_the_frames_of_their_utterances(self, corpus):
        part = corpus.part(np.array([4, 40]))
        first = slice(corpus.bounds[4], corpus.bounds[5])
        length = first.stop - first.start
        np.testing.assert_array_equal(part.frames[:length], corpus.mfcc[first])
        np.testing.assert_array_equal(part.labels[:length], corpus.labels[first])
        assert part.bounds.tolist() == [0, length, len(part.labels)]

    def test_normalised_speaker_by_speaker(self, corpus):
        found = normalised(replace(corpus, X=corpus.X * 5 + 3))
        for own in _speakers(corpus):
            rows = found.rows(own)
            np.testing.assert_allclose(found.X[rows].mean(axis=0), 0, atol=1e-4)
            np.testing.assert_allclose(found.Y[rows].std(axis=0), 1, atol=1e-3)

    def test_a_constant_column_is_no_division_by_zero(self, corpus):
        Y = corpus.Y.copy()
        Y[:, 0] = 7
        assert np.isfinite(normalised(replace(corpus, Y=Y)).Y).all()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"Y": slice(0, -1)}, r"Y has [\d,]+ frames but there are [\d,]+ labels"),
            ({"X": (slice(None), slice(0, 266))}, "X has 266 columns; expected 273"),
            ({"Y": (slice(None), slice(0, 40))}, "Y has 40 columns; expected a multiple of 7"),
            ({"bounds": slice(0, -1)}, "utterances end at frame"),
        ],
    )
    def test_views_that_do_not_match(self, corpus, change, message):
        cut = {name: getattr(corpus, name)[where] for name, where in change.items()}
        with pytest.raises(InputError, match=message):
            check(replace(corpus, **cut))

    def test_missing_labels_and_values_that_are_not_finite(self, corpus):
        labels = corpus.labels.copy()
        labels[[20, 30]] = -1
        with pytest.raises(InputError, match="2 frames have no label, the first is frame 20"):
            check(replace(corpus, labels=labels))
        Y = corpus.Y.copy()
        Y[corpus.bounds[3], 2] = np.nan
        with pytest.raises(InputError, match=r"Y is not finite .* utterance 3 of speaker0"):
            check(replace(corpus, Y=Y))

    def test_speakers_with_too_few_frames(self, corpus):
        speakers = corpus.speakers.astype("<U8")
        speakers[:5] = "brief"
        with pytest.raises(InputError, match="speaker brief has 5 utterances"):
            check(replace(corpus, speakers=speakers))


class TestMocha:
    def test_three_speakers_one_of_them_aligned(self, corpus, tmp_path):
        write_mocha(tmp_path, corpus)
        found = mocha(tmp_path)
        assert list(dict.fromkeys(found.speakers)) == ["msak0", "fsew0", "maps0"]
        assert found.Y.shape[1] == 7 * 12
        assert found.left_out == (0,)
        np.testing.assert_array_equal(found.bounds, corpus.bounds)
        np.testing.assert_array_equal(found.sentences, corpus.sentences + 1)
        own = found.rows(np.flatnonzero(found.speakers == "maps0"))
        # The synthetic labels of that speaker are known.
        assert (found.labels[own] == corpus.labels[own]).mean() > 0.9
        assert (mocha(tmp_path, ["fsew0"]).labels == corpus.part(_speakers(corpus)[1]).labels).all()

    def test_a_sentence_that_no_other_speaker_reads(self, corpus, tmp_path):
        write_mocha(tmp_path, corpus)
        path = tmp_path / "mocha_maps0.npz"
        with np.load(path) as data:
            columns = dict(data)
        columns["utt"] = np.where(columns["utt"] == 3, 99, columns["utt"])
        np.savez(path, **columns)
        with pytest.raises(InputError, match=r"maps0: .* frames have no label"):
            mocha(tmp_path)

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"ema": np.zeros((50, 14))}, r"same frames, but they have mfcc [\d,]+, ema 50"),
            ({"phone": None}, "has no 'phone'; it has mfcc"),
            ({"utt": None}, "has no 'utt'"),
        ],
    )
    def test_damaged_files(self, corpus, tmp_path, changed, message):
        write_mocha(tmp_path, corpus, **changed)
        with pytest.raises(InputError, match=message):
            mocha(tmp_path)

    def test_frames_without_a_label(self, corpus, tmp_path):
        labels = corpus.labels[corpus.rows(_speakers(corpus)[0])].astype(np.uint8)
        labels[7] = 255
        write_mocha(tmp_path, corpus, phone=labels)
        with pytest.raises(InputError, match="msak0: 1 frames have no label, the first is frame 7"):
            mocha(tmp_path, ["msak0"])

    def test_no_files(self, tmp_path):
        with pytest.raises(SourceNotFoundError, match=r"mocha_fsew0.npz does not exist"):
            mocha(tmp_path, ["fsew0"])

    @pytest.mark.shared_data
    def test_the_corpus_itself(self, shared_data):
        found = mocha(shared_data / "mocha", ["fsew0"])
        assert (len(found.speakers), len(found.phone_names)) == (460, 46)
        assert [found.phone_names[one] for one in found.left_out] == ["sil", "breath"]


class TestXrmb:
    def test_speakers_and_utterances_are_found(self, tmp_path):
        several = write_xrmb(tmp_path)
        found = xrmb(tmp_path)
        np.testing.assert_array_equal(found.bounds, several.bounds)
        np.testing.assert_array_equal(found.labels, several.labels)
        assert found.Y.shape[1] == 112
        assert found.left_out == (0,)
        # Six of the fourteen are outside of the training part; six more make twelve.
        assert found.learners == ("01", "02")
        assert "6 of them from the training part" in found.notes[0]
        folds = list(PROTOCOLS["paper"](found))
        assert len(folds) == 6
        for fold in folds:
            parts = [set(found.speakers[part]) for part in (fold.train, fold.tune, fold.test)]
            assert [len(part) for part in parts] == [8, 2, 2]
            assert not set.intersection(*parts)
            assert set(found.speakers[fold.learn]) == {"01", "02"}
        tested = [speaker for fold in folds for speaker in set(found.speakers[fold.test])]
        assert sorted(tested) == sorted(set(found.speakers) - {"01", "02"})

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda v: v.pop("trainLabel"), "XRMB: no file has trainLabel"),
            (lambda v: v.pop("XV1"), "XRMB: no file has XV1"),
            (
                lambda v: v.update(XTe2=v["XTe2"][:-1]),
                r"test part: expected as many frames of all, not XTe1 [\d,]+, XTe2",
            ),
            (
                lambda v: v.update(X1=v["X1"][::-1]),
                "continue the one before. The recogniser needs frames in the order of time",
            ),
            (lambda v: v.update(tuneLabel=v["tuneLabel"] - 2), "frames have no label"),
        ],
    )
    def test_damaged_files(self, tmp_path, change, message):
        write_xrmb(tmp_path, change)
        with pytest.raises(KnoiError, match=message):
            xrmb(tmp_path)

    def test_no_files(self, tmp_path):
        with pytest.raises(SourceNotFoundError, match="Fetch XRMBf2KALDI_window7_single1"):
            xrmb(tmp_path)

    def test_without_a_label_that_begins_most_utterances_none_is_silence(self, tmp_path):
        def change(variables):
            for _, _, label, _ in XRMB_PARTS.values():
                variables[label] = variables[label] + np.arange(len(variables[label]))[:, None] % 7

        write_xrmb(tmp_path, change)
        found = xrmb(tmp_path)
        assert found.left_out == ()
        assert "none is taken for silence" in found.notes[2]


class TestProtocols:
    @pytest.mark.parametrize("name", ["same", "other", "unseen"])
    def test_test_sentences_are_never_trained_on(self, corpus, name):
        folds = list(PROTOCOLS[name](corpus))
        assert len(folds) == 18
        assert len({fold.name for fold in folds}) == 18
        for fold in folds:
            sentences = [set(corpus.sentences[part]) for part in (fold.train, fold.tune, fold.test)]
            assert not sentences[0] & sentences[1]
            assert not sentences[0] & sentences[2]
            assert not sentences[1] & sentences[2]
            assert not set(fold.learn) & {*fold.tune, *fold.test}
        tested = np.sort(np.concatenate([fold.test for fold in folds]))
        np.testing.assert_array_equal(tested, np.arange(len(corpus.speakers)))

    def test_who_learns_and_trains(self, corpus):
        def speakers(utterances):
            return set(corpus.speakers[utterances])

        for name, learn, train in (("same", 0, 0), ("other", 1, 0), ("unseen", 1, 1)):
            fold = next(PROTOCOLS[name](corpus))
            others = {"speaker1", "speaker2"}
            assert speakers(fold.learn) == (others if learn else {"speaker0"})
            assert speakers(fold.train) == (others if train else {"speaker0"})
            assert speakers(fold.tune) == speakers(fold.test) == {"speaker0"}

    def test_one_speaker_is_too_few_for_some(self, corpus):
        alone = replace(corpus, speakers=np.full(len(corpus.speakers), "one"))
        for name in ("other", "unseen"):
            with pytest.raises(InputError, match="needs two speakers or more"):
                list(PROTOCOLS[name](alone))
        with pytest.raises(InputError, match="the protocol 'paper' needs some and 12"):
            list(PROTOCOLS["paper"](corpus))


class TestVariants:
    def test_noise_is_on_the_sound_only(self, corpus):
        plain = prepared(corpus, VARIANTS["plain"])
        found = prepared(corpus, VARIANTS["more-noise"])
        np.testing.assert_array_equal(found.Y, plain.Y)
        np.testing.assert_array_equal(found.labels, plain.labels)
        # Signal and noise of equal variance.
        static = slice(0, 13)
        correlation = np.corrcoef(found.mfcc[:, static].ravel(), plain.mfcc[:, static].ravel())
        assert correlation[0, 1] == pytest.approx(0.5**0.5, abs=0.02)
        np.testing.assert_array_equal(found.X, prepared(corpus, VARIANTS["more-noise"]).X)

    def test_warping_moves_a_peak_of_the_spectrum(self):
        def spectrum(cepstra):
            lifter = 1 + 11 * np.sin(np.pi * np.arange(40) / 22)
            places = (np.arange(200) + 0.5) / 200
            cosines = np.cos(np.pi * np.outer(places, np.arange(40)))
            return places, cosines @ (cepstra / lifter * np.r_[1, np.full(39, 2**0.5)])

        places = (np.arange(400) + 0.5) / 400
        bump = np.exp(-(((places - 0.4) / 0.1) ** 2))
        lifter = 1 + 11 * np.sin(np.pi * np.arange(40) / 22)
        cosines = np.cos(np.pi * np.outer(np.arange(40), places)) * 2**0.5
        cosines[0] /= 2**0.5
        cepstra = lifter * (cosines @ bump) / 400
        for factor in (0.9, 1.15):
            where, moved = spectrum(warping(factor, 40) @ cepstra)
            assert where[moved.argmax()] == pytest.approx(0.4 * factor, abs=0.01)
        np.testing.assert_allclose(warping(1.0), np.eye(13), atol=1e-6)

    def test_warped_speakers_differ_by_fold(self, corpus):
        plain, found = (prepared(corpus, VARIANTS[name]) for name in ("plain", "warped"))
        np.testing.assert_array_equal(found.speakers, plain.speakers)
        # Articulation is only normalised by other parts.
        assert np.corrcoef(found.Y[:, 0], plain.Y[:, 0])[0, 1] > 0.95
        part = (corpus.sentences % 6)[corpus.utterance_of_frame]
        gap = [np.abs(found.X - plain.X)[part == k].mean() for k in range(6)]
        # The further from a factor of 1, the larger the change.
        assert gap[0] > gap[2]
        assert gap[5] > gap[3]

    def test_less_training_data(self, corpus):
        fold = next(PROTOCOLS["same"](corpus))
        less = VARIANTS["less"].fold(fold)
        assert len(less.train) == len(fold.train) // 4
        np.testing.assert_array_equal(less.learn, fold.learn)


@pytest.fixture
def quick(monkeypatch):
    """A search of one combination and small networks."""
    monkeypatch.setattr(methods, "X_WIDTHS", ("1x",))
    monkeypatch.setattr(methods, "Y_WIDTHS", ("2x",))
    monkeypatch.setattr(methods, "KERNEL_REGS", (1e-4,))
    monkeypatch.setattr(methods, "LINEAR_REGS", (1e-4,))
    monkeypatch.setattr(methods, "SEARCH_RANK", 100)
    monkeypatch.setattr(methods, "DEEP", {"hidden": ((80, 80, 80), ()), "epochs": 2})


class TestCells:
    def test_every_method_runs_and_nothing_is_computed_twice(self, corpus, quick, tmp_path):
        lines = []
        experiment = Experiment(corpus, tmp_path, rank=100, log=lines.append)
        names = list(methods.METHODS)
        cells = list(experiment.cells(["same"], ["plain"], names, [0]))[: len(names)]
        found = {cell.method: experiment.run(cell) for cell in cells}
        assert sorted(path.stem for path in tmp_path.glob("*.json")) == sorted(
            [*(cell.key for cell in cells), "synthetic-same-plain-speaker0-0-search"]
        )
        for name, cell in found.items():
            assert set(cell["rates"]) == {"gmm", "softmax"}
            sizes = ["0"] if name == "mfcc" else ["30", "50", "70"]
            for by_size in cell["rates"].values():
                assert list(by_size) == sizes
                for one in by_size.values():
                    assert len(one["errors"]) == len(cell["phones"])
                    assert one["test"] == sum(one["errors"]) / sum(cell["phones"])
                    assert one["test"] < 0.5
            if name in ("mfcc", "pca", "kpca"):
                assert cell["correlation"] == {}
            else:
                assert 0 < cell["correlation"]["tune"]["fitted"] <= 70
            assert ("width" in cell["settings"]) == methods.METHODS[name].searched
        assert found["nkcca"]["settings"]["reg"] == 1e-4
        lines.clear()
        again = Experiment(corpus, tmp_path, rank=100, log=lines.append)
        assert [again.run(cell) for cell in cells] == list(found.values())
        assert all("stored already" in line for line in lines)

    def test_folds_that_learn_from_the_same_frames_share_models(self, corpus, quick, tmp_path):
        experiment = Experiment(corpus, tmp_path, rank=50, log=lambda line: None)
        cells = list(experiment.cells(["other"], ["plain"], ["pca", "cca"], [0, 1]))[:4]
        first, _, second, _ = (experiment.run(cell) for cell in cells)
        assert first["fit_seconds"] == second["fit_seconds"]
        assert first["rates"] != second["rates"]

    @pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "plain"])
    def test_variants_run(self, corpus, variant, tmp_path):
        experiment = Experiment(corpus, tmp_path, log=lambda line: None)
        cells = list(experiment.cells(["same"], [variant], ["mfcc", "pca"], [2]))[:2]
        for cell in cells:
            found = experiment.run(cell)
            assert tuple(found["rates"]) == VARIANTS[variant].acoustic
            assert variant in cell.key

    def test_a_method_that_needs_more_memory_is_skipped(self, corpus, quick, tmp_path):
        lines = []
        experiment = Experiment(corpus, tmp_path, memory_budget="30MiB", log=lines.append)
        (cell, *_) = experiment.cells(["same"], ["plain"], ["fkcca"], [0])
        assert experiment.run(cell) is None
        assert "skipped: " in lines[-1]
        assert "memory_budget" in lines[-1]
        assert Cells(tmp_path).stored(cell.key) is None

    def test_the_number_of_features_is_chosen_on_the_tuning_sentences(self):
        rates = {
            "30": {"tuning": 0.3, "test": 0.1},
            "50": {"tuning": 0.2, "test": 0.4},
            "70": {"tuning": 0.2, "test": 0.1},
        }
        assert chosen(rates) == (50, rates["50"])


class TestCommand:
    def test_it_runs_lists_and_goes_on(self, quick, tmp_path, capsys):
        options = ["--corpus", "synthetic", "--folds", "1", "--output", str(tmp_path)]
        options += ["--methods", "mfcc,pca", "--rank", "50"]
        main([*options, "--list"])
        output = capsys.readouterr().out
        assert "6 of 6 cells to run, about " in output
        assert "synthetic-same-plain-speaker2-1-pca: to be run" in output
        assert not list(tmp_path.iterdir())
        main(options)
        output = capsys.readouterr().out
        assert "Phone error rate" in output
        assert len(list(tmp_path.iterdir())) == 6
        (tmp_path / "synthetic-same-plain-speaker1-1-mfcc.json").unlink()
        main(options)
        output = capsys.readouterr().out
        assert "1 of 6 cells to run" in output
        assert output.count("stored already") == 5
        cell = json.loads((tmp_path / "synthetic-same-plain-speaker1-1-mfcc.json").read_text())
        assert cell["origin"]["commit"]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--methods", "dccae"], "no method 'dccae'. Choose any of mfcc"),
            (["--protocol", "alone"], "no protocol 'alone'. Choose any of same"),
            (["--variants", "loud"], "no variant 'loud'. Choose any of plain"),
            (["--folds", "6"], "There is no fold 6; there are 0 to 5"),
            (["--protocol", "paper"], "the protocol 'paper' needs some and 12"),
        ],
    )
    def test_an_error_is_one_line(self, options, message, tmp_path):
        with pytest.raises(SystemExit, match=message):
            main(["--corpus", "synthetic", *options, "--output", str(tmp_path)])
        assert not list(tmp_path.iterdir())

    def test_no_data(self, tmp_path):
        with pytest.raises(SystemExit, match="does not exist"):
            main(["--corpus", "mocha", "--data", str(tmp_path)])

    def test_estimates(self, corpus, tmp_path):
        whole, small = Experiment(corpus, tmp_path), Experiment(corpus, tmp_path, rank=50)
        minutes = [
            experiment.minutes(next(experiment.cells(["same"], ["plain"], ["nkcca"], [0])))
            for experiment in (small, whole)
        ]
        assert 0 < minutes[0] < minutes[1]
