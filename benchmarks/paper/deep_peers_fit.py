"""Deep CCA by another library, run by the Python of that library's environment.

    python deep_peers_fit.py '{"class": "DCCA", "seconds": 60, ...}'

`deep_peers` starts it in a folder with `train_x.npy`, `train_y.npy`, `test_x.npy` and `test_y.npy`.
It trains for the given seconds and writes the outputs for the same rows (`out_train_x.npy` and so
on) and `report.json`. Nothing of knoi is imported. A training that fails is reported; a missing
package is an error.
"""

import contextlib
import datetime
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

PARTS = ("train", "test")
VIEWS = ("x", "y")
HIDDEN = (800, 800)  # of cca_zoo's encoders: as those of DeepCCA
PREDICTED = 2000  # rows per minibatch of outputs


class CCAZoo:
    """A class of cca_zoo, used as in its guide: Lightning, Adam, default settings.

    Users make the encoders themselves. Layers are as in an example of the guide; without its batch
    normalisation, `DCCAEY` and `DCCANOI` learned far more slowly in trials.
    """

    def __init__(self, train, job):
        import lightning.pytorch as lightning
        from cca_zoo import deep
        from torch.utils.data import DataLoader

        lightning.seed_everything(job["seed"])
        self.loader = lambda views, **how: DataLoader(deep.MultiviewDataset(views), **how)
        self.train, self.batch = train, job["batch"]
        encoders = [_encoder(view.shape[1], job["n_components"]) for view in train]
        self.model = getattr(deep, job["class"])(job["n_components"], encoders)
        self.trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=-1,
            max_time=datetime.timedelta(seconds=job["seconds"]),
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        )
        self.versions = _versions("cca-zoo", "lightning", "torch", "numpy")

    @property
    def steps(self):
        """Training steps so far."""
        return self.trainer.global_step

    def fit(self):
        """Train for the given time."""
        self.trainer.fit(self.model, self.loader(self.train, batch_size=self.batch, shuffle=True))

    def transform(self, views):
        """Outputs for these rows."""
        batches = self.trainer.predict(self.model, self.loader(views, batch_size=PREDICTED))
        return [torch.cat(outputs).numpy() for outputs in zip(*batches, strict=True)]


def _encoder(n_columns, n_components):
    layers = []
    for width in HIDDEN:
        layers += [torch.nn.Linear(n_columns, width), torch.nn.BatchNorm1d(width), torch.nn.ReLU()]
        n_columns = width
    return torch.nn.Sequential(*layers, torch.nn.Linear(n_columns, n_components))


class OutOfTimeError(Exception):
    """The training has used up its seconds."""


class Michaelvll:
    """A checkout of Michaelvll/DeepCCA with the settings at the end of its `main.py`.

    Its solver stops after a number of epochs only, so the loss raises when the time is over. The
    epoch that is interrupted then ends as epochs do there: the weights are kept if the validation
    rows, here a tenth of the training rows, say so. torch 2 has no `symeig`; `eigh` replaces it.
    """

    def __init__(self, train, job):
        sys.path.insert(0, job["checkout"])
        torch.symeig = lambda A, eigenvectors: torch.linalg.eigh(A, UPLO="U")
        from DeepCCAModels import DeepCCA
        from linear_cca import linear_cca
        from main import Solver

        torch.manual_seed(job["seed"])
        views = [torch.as_tensor(view, dtype=torch.float64) for view in train]
        order = np.random.default_rng(job["seed"]).permutation(len(views[0]))
        n_validation = len(order) // 10
        self.validation = [view[order[:n_validation]] for view in views]
        self.train = [view[order[n_validation:]] for view in views]
        n_columns, L = [view.shape[1] for view in views], job["n_components"]
        layers = [1024, 1024, 1024, L]
        model = DeepCCA(layers, layers, *n_columns, L, use_all_singular_values=False)
        self.solver = Solver(
            model,
            linear_cca(),
            L,
            epoch_num=10**6,
            batch_size=800,
            learning_rate=1e-3,
            reg_par=1e-5,
        )
        self.loss, self.solver.loss = self.solver.loss, self._loss_in_time
        self.steps, self.seconds = 0, job["seconds"]
        self.versions = _versions("torch", "numpy")

    def _loss_in_time(self, *outputs):
        if torch.is_grad_enabled():  # not in validation
            if time.perf_counter() > self.end:
                raise OutOfTimeError
            self.steps += 1
        return self.loss(*outputs)

    def fit(self):
        """Train for the given time, keep the better weights and fit the linear CCA."""
        solver, checkpoint = self.solver, Path("checkpoint.model")
        self.end = time.perf_counter() + self.seconds
        with contextlib.suppress(OutOfTimeError):
            solver.fit(*self.train, *self.validation, checkpoint=str(checkpoint))
        if checkpoint.exists():
            last = solver.test(*self.validation)
            weights = {name: one.clone() for name, one in solver.model.state_dict().items()}
            solver.model.load_state_dict(torch.load(checkpoint))
            if last < solver.test(*self.validation):
                solver.model.load_state_dict(weights)
        solver.train_linear_cca(*solver._get_outputs(*self.train)[1])

    def transform(self, views):
        """Outputs for these rows, aligned by the linear CCA."""
        views = [torch.as_tensor(view, dtype=torch.float64) for view in views]
        return self.solver.test(*views, use_linear_cca=True)[1]


def _versions(*packages):
    return {name: version(name) for name in packages}


def main():
    job = json.loads(sys.argv[1])
    rows = {part: [np.load(f"{part}_{view}.npy") for view in VIEWS] for part in PARTS}
    peer = (Michaelvll if "checkout" in job else CCAZoo)(rows["train"], job)
    start, report = time.perf_counter(), {}
    try:
        peer.fit()
        report["seconds"] = time.perf_counter() - start
        for part in PARTS:
            for view, outputs in zip(VIEWS, peer.transform(rows[part]), strict=True):
                np.save(f"out_{part}_{view}.npy", outputs)
    except (ArithmeticError, RuntimeError, ValueError) as error:  # LinAlgError is one of these
        report["failed"] = f"{type(error).__name__}: {error}"
        report.setdefault("seconds", time.perf_counter() - start)
    report |= {"steps": peer.steps, "versions": peer.versions}
    Path("report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
