"""One fold of the experiment: features of its frames, and error rates of recognisers with them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from benchmarks.fits import evaluate
from benchmarks.speech.acoustic import Frames, States
from benchmarks.speech.corpora import Corpus
from benchmarks.speech.methods import DIMENSIONS, SEARCH_DIMENSIONS
from benchmarks.speech.protocols import Fold, Variant
from benchmarks.speech.recogniser import Recogniser, Utterances, train, train_gmm

PARTS = ("train", "tune", "test")


@dataclass(frozen=True)
class FoldData:
    """What all methods of a fold share. `corpus` is the prepared one of the variant."""

    corpus: Corpus
    fold: Fold
    variant: Variant

    @cached_property
    def parts(self) -> list[Utterances]:
        """Training, tuning and test utterances, with their MFCC."""
        return [self.corpus.part(getattr(self.fold, part)) for part in PARTS]

    @cached_property
    def states(self) -> States:
        """States of the training frames, aligned by mixtures of MFCC alone."""
        return train_gmm(self.parts[0], len(self.corpus.phone_names))[1]

    def views(self, part: str) -> tuple[Frames, Frames]:
        """Both views of "learn", "train", "tune" or "test"."""
        rows = self.corpus.rows(getattr(self.fold, part))
        return self.corpus.X[rows], self.corpus.Y[rows]

    def correlations(self, model: Any) -> dict[str, Any]:
        """Total correlation of tuning and test frames by both measures, if the model has any."""
        if not hasattr(model, "correlations_"):
            return {}
        return {part: evaluate(model, self.views(part)) for part in PARTS[1:]}

    def tuning_rate(self, model: Any) -> float:
        """Mean phone error rate of the acoustic models on the tuning sentences."""
        features = self._features(model, PARTS[:2])
        return float(
            np.mean(
                [
                    self._recogniser(kind, features, SEARCH_DIMENSIONS)[1]
                    for kind in self.variant.acoustic
                ]
            )
        )

    def rates(self, model: Any) -> dict[str, Any]:
        """Error rates by acoustic model and number of features; the model None appends none."""
        features = self._features(model, PARTS)
        found: dict[str, Any] = {}
        for kind in self.variant.acoustic:
            for L in (0,) if model is None else DIMENSIONS:
                recogniser, rate = self._recogniser(kind, features, L)
                test = recogniser.errors(self._joined(features, L)[2])
                found.setdefault(kind, {})[str(L)] = {
                    "tuning": rate,
                    "scale": recogniser.scale,
                    "penalty": recogniser.penalty,
                    "test": test.rate,
                    "errors": test.errors.tolist(),
                }
        return {"rates": found, "phones": test.phones.tolist()}

    def _features(self, model: Any, parts: tuple[str, ...]) -> list[Frames]:
        """The features of some parts, standardised by the training frames."""
        if model is None:
            return [np.empty((len(part.labels), 0), np.float32) for part in self.parts]
        features = [model.transform(self.views(part)[0]) for part in parts]
        mean, deviation = features[0].mean(axis=0), features[0].std(axis=0)
        scale = np.where(deviation > 0, deviation, 1)
        return [((one - mean) / scale).astype(np.float32) for one in features]

    def _recogniser(self, kind: str, features: list[Frames], L: int) -> tuple[Recogniser, float]:
        """Trained and tuned, with its error rate on the tuning sentences."""
        training, tuning, *_ = self._joined(features, L)
        states = None if kind == "gmm" else self.states
        made = train(training, len(self.corpus.phone_names), self.corpus.left_out, kind, states)
        return made.tuned(tuning)

    def _joined(self, features: list[Frames], L: int) -> list[Utterances]:
        """The MFCC and the first L features of each part, rotated if the variant says so."""
        pairs = list(zip(self.parts, features, strict=False))
        frames = [np.hstack([part.frames, own[:, :L]]) for part, own in pairs]
        if self.variant.rotated:
            rotation = PCA(random_state=0).fit(frames[0])
            frames = [rotation.transform(one).astype(np.float32) for one in frames]
        return [part.with_frames(one) for (part, _), one in zip(pairs, frames, strict=True)]
