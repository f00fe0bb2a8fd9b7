"""KNOI models in files, and runs that go on from a checkpoint."""

import numpy as np
import pytest

import knoi
from knoi import KNOI
from knoi.callbacks.checkpoint import FILE_NAME
from knoi.estimators import training
from knoi.exceptions import (
    NonFiniteError,
)
from knoi.features import KernelColumns, RandomFourier
from knoi.kernels import RBF
from knoi.solvers.noi import KNOIUpdate
from tests.estimators.knoi_models import assert_equal_models, every_solver, small, views
from tests.estimators.refusing import with_value


class TestSaving:
    def same_again(self, model, path, X, Y):
        model.save(path)
        again = knoi.load(path)
        assert type(again) is KNOI
        assert_equal_models(again, model)
        assert again.history_ == model.history_
        assert again.stopped_ == model.stopped_
        for Z, W in zip(again.transform(X, Y), model.transform(X, Y), strict=True):
            np.testing.assert_array_equal(Z, W)
        return again

    @every_solver
    def test_history_comes_back(self, tmp_path, solver):
        X, Y = views(1200)
        model = small(solver, epochs=3, checkpoint=tmp_path / "run").fit(X, Y)
        again = self.same_again(model, tmp_path / "m.knoi", X, Y)
        kept = {"checkpoint": str(tmp_path / "run")}
        assert again.get_params() == model.get_params() | kept

    def test_a_stream_comes_back_as_a_model(self, tmp_path):
        X, Y = views(400)
        model = small().partial_fit(X, Y)
        model.save(tmp_path / "m.knoi")
        again = KNOI.load(tmp_path / "m.knoi")
        np.testing.assert_array_equal(again.transform(X), model.transform(X))
        assert again.stopped_ is None

    @pytest.mark.parametrize("which", ["one for both", "a pair", "one and a name"])
    def test_feature_maps_that_were_given_come_back(self, tmp_path, which):
        X, _ = views(400)
        Y = X[:, ::-1] + 0.1
        fourier = RandomFourier.fit(X, RBF(2.0), 30, 5, 0)
        columns = KernelColumns(RBF(3.0), Y[:20].copy())
        given = {"one for both": fourier, "a pair": (fourier, columns)}
        approximation = given.get(which, ("nystrom", columns))
        model = small(approximation=approximation, epochs=3).fit(X, Y)
        again = self.same_again(model, tmp_path / "m.knoi", X, Y)
        maps = again.approximation if which != "one for both" else (again.approximation,) * 2
        projection = model.projection_.x, model.projection_.y
        for found, wanted in zip(maps, projection, strict=True):
            if found == "nystrom":
                continue
            np.testing.assert_array_equal(found.transform(X), wanted.features.transform(X))
        assert_equal_models(again.fit(X, Y), model)


class TestCheckpoints:
    def test_a_run_that_has_ended_is_not_trained_again(self, tmp_path):
        X, Y = views(1200)
        model = small(epochs=3, checkpoint=tmp_path).fit(X, Y)
        written = (tmp_path / FILE_NAME).read_bytes()
        again = small(epochs=3, checkpoint=tmp_path).fit(X, Y, resume=True)
        assert_equal_models(again, model)
        assert (tmp_path / FILE_NAME).read_bytes() == written

    @every_solver
    def test_more_epochs_go_on_from_there(self, tmp_path, solver):
        X, Y = views(600)
        # Regularisation left open would be that of the epochs the run was begun with.
        params = {"reg": 1e-4}
        straight = small(solver, epochs=5, **params).fit(X, Y)
        small(solver, epochs=2, checkpoint=tmp_path, **params).fit(X, Y)
        again = small(solver, epochs=5, checkpoint=tmp_path, **params).fit(X, Y, resume=True)
        np.testing.assert_array_equal(again.x_weights_, straight.x_weights_)

    def test_a_run_out_of_time_goes_on(self, tmp_path):
        X, Y = views(1200)
        params = {"epochs": 3, "tol": None, "checkpoint": tmp_path}
        first = small(**params, max_time=1e-9).fit(X, Y)
        assert first.stopped_ == "out of time"
        again = small(**params).fit(X, Y, resume=True)
        assert again.stopped_ == "epochs"
        straight = small(epochs=3, tol=None).fit(X, Y)
        np.testing.assert_array_equal(again.x_weights_, straight.x_weights_)

    def test_a_converged_run_goes_on_if_tol_says_so(self, tmp_path):
        X, Y = views(1500)
        params = {"epochs": 40, "checkpoint": tmp_path}
        model = small(**params, tol=0.05).fit(X, Y)
        assert model.stopped_ == "converged"
        again = small(**params, tol=0.05).fit(X, Y, resume=True)
        assert again.stopped_ == "converged"
        assert_equal_models(again, model)
        further = small(**params, tol=None).fit(X, Y, resume=True)
        assert further.stopped_ == "epochs"
        assert_equal_models(further, small(epochs=40, tol=None).fit(X, Y))

    def test_resume_without_a_checkpoint_in_the_directory_starts(self, tmp_path):
        X, Y = views(600)
        model = small(epochs=2, checkpoint=tmp_path / "new").fit(X, Y, resume=True)
        assert_equal_models(model, small(epochs=2).fit(X, Y))

    def test_a_fit_that_does_not_resume_replaces_the_checkpoint_with_its_first(self, tmp_path):
        X, Y = views(600)
        small(epochs=2, checkpoint=tmp_path).fit(X, Y)
        old = (tmp_path / FILE_NAME).read_bytes()
        with pytest.raises(NonFiniteError):  # before the first step
            small(epochs=2, checkpoint=tmp_path).fit(with_value(X, 0, 0, np.nan), Y)
        assert (tmp_path / FILE_NAME).read_bytes() == old
        other = small(epochs=2, random_state=1, checkpoint=tmp_path).fit(X, Y)
        assert (tmp_path / FILE_NAME).read_bytes() != old
        assert_equal_models(other, small(epochs=2, random_state=1).fit(X, Y))

    def test_an_error_in_the_middle_costs_no_step(self, tmp_path, monkeypatch):
        X, Y = views(1500)
        params = {"epochs": 6, "tol": None}
        judge = training.Training.held_out_correlation

        def fail_at_100(self, weights):
            if weights.steps >= 100:
                raise OSError("the disk is gone")
            return judge(self, weights)

        monkeypatch.setattr(training.Training, "held_out_correlation", fail_at_100)
        model = small(**params, checkpoint=tmp_path, checkpoint_seconds=1e6)
        with pytest.raises(OSError, match=r"^the disk is gone\n") as raised:
            model.fit(X, Y)
        assert raised.value.__notes__ == [
            f"The steps until here are saved in {tmp_path}: once the cause is mended, fit with "
            "resume=True goes on from there."
        ]
        monkeypatch.setattr(training.Training, "held_out_correlation", judge)
        steps = []
        count = KNOIUpdate.step
        monkeypatch.setattr(KNOIUpdate, "step", lambda *args: (steps.append(1), count(*args))[1])
        model.fit(X, Y, resume=True)
        assert len(steps) == 138 - 99
        assert_equal_models(model, small(**params).fit(X, Y))

    def test_a_bad_row_late_in_a_file(self, tmp_path):
        X, Y = views(60_000, dtype=np.float32)
        np.save(tmp_path / "x.npy", X)
        np.save(tmp_path / "y.npy", Y)
        files = tmp_path / "x.npy", tmp_path / "y.npy"
        # Room for a part of the rows at a time; no step is saved before the error.
        params = {"epochs": 1, "batch_size": 300, "memory_budget": "1MB", "tol": None}
        saved = {"checkpoint": tmp_path / "run", "checkpoint_seconds": 1e6}
        rescued = []
        for row in (41_000, 47_000, 53_000, 59_000):  # some may be rows that a sample looks at
            stored = np.lib.format.open_memmap(files[0], mode="r+")
            stored[row, 2] = np.nan
            stored.flush()
            with pytest.raises(NonFiniteError) as raised:
                small(**params, **saved).fit(*files)
            assert str(raised.value) == (
                f"X has NaN at row {row}, column 2: CCA needs complete rows. Drop the row or "
                "impute the value (e.g. sklearn.impute.SimpleImputer) before fitting."
            )
            stored[row, 2] = X[row, 2]
            stored.flush()
            rescued = getattr(raised.value, "__notes__", [])
            if rescued:
                break
        assert rescued == [
            f"The steps until here are saved in {tmp_path / 'run'}: once the cause is mended, fit "
            "with resume=True goes on from there."
        ]
        model = small(**params, **saved).fit(*files, resume=True)
        assert_equal_models(model, small(**params).fit(*files))
