"""The phone recogniser against naive versions: search, acoustic models, training, error rates."""

from dataclasses import replace
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.linear_model import LogisticRegression

from benchmarks.speech import acoustic, recogniser
from benchmarks.speech.acoustic import Mixture, Mixtures
from benchmarks.speech.recogniser import Errors, Recogniser, Utterances, even_states, train_gmm
from benchmarks.speech.search import align, bigram, decode, edit_distance, states_of

# Search.


@pytest.mark.parametrize("seed", range(10))
def test_alignment_against_all_ways_to_pass_the_states(seed):
    rng = np.random.default_rng(seed)
    scores, path = rng.standard_normal((6, 6)), np.array([3, 4, 5, 0])
    ways = [
        places
        for places in product(range(4), repeat=6)
        if places[0] == 0 and places[-1] == 3 and set(np.diff(places)) <= {0, 1}
    ]
    best = max(ways, key=lambda places: sum(scores[t, path[p]] for t, p in enumerate(places)))
    places, score = align(scores, path)
    assert tuple(places) == best
    assert score == pytest.approx(sum(scores[t, path[p]] for t, p in enumerate(best)))


@pytest.mark.parametrize("seed", range(10))
def test_decoding_against_all_paths(seed):
    rng = np.random.default_rng(seed)
    n_frames, n_phones = 7, 2
    scores = rng.standard_normal((n_frames, 3 * n_phones))
    transitions = rng.standard_normal((n_phones + 1, n_phones + 1))
    best, found = -np.inf, None
    for states in product(range(3 * n_phones), repeat=n_frames):
        value = _value(states, scores, transitions)
        if value > best:
            best, found = value, states
    starts = [t for t in range(n_frames) if found[t] % 3 == 0 and (t == 0 or found[t - 1] % 3 == 2)]
    phones, score = decode(scores, transitions)
    assert score == pytest.approx(best)
    assert phones.tolist() == [found[t] // 3 for t in starts]


def _value(states, scores, transitions):
    """The score of one path of states, minus infinity if it is not allowed."""
    if states[0] % 3 or states[-1] % 3 != 2:
        return -np.inf
    total = transitions[-1, states[0] // 3] + scores[0, states[0]]
    for t, (one, then) in enumerate(pairwise(states), start=1):
        if one % 3 == 2 and then % 3 == 0:
            total += transitions[one // 3, then // 3]
        elif then != one and (then != one + 1 or one % 3 == 2):
            return -np.inf
        total += scores[t, then]
    return total + transitions[states[-1] // 3, -1]


def naive_viterbi(scores, transitions):
    """Decoding by a matrix of all transitions between states."""
    n_phones = scores.shape[1] // 3
    between = np.full((3 * n_phones, 3 * n_phones), -np.inf)
    for p in range(n_phones):
        for s in range(3):
            between[3 * p + s, 3 * p + s] = 0
        between[3 * p, 3 * p + 1] = between[3 * p + 1, 3 * p + 2] = 0
        between[3 * p + 2, ::3] = transitions[p, :-1]
    best = np.full(3 * n_phones, -np.inf)
    best[::3] = transitions[-1, :-1] + scores[0, ::3]
    for row in scores[1:]:
        best = (best[:, None] + between).max(axis=0) + row
    return (best[2::3] + transitions[:-1, -1]).max()


def test_decoding_of_many_phones_against_a_naive_search():
    rng = np.random.default_rng(0)
    for _ in range(5):
        scores, transitions = rng.standard_normal((80, 30)), rng.standard_normal((11, 11))
        phones, score = decode(scores, transitions)
        assert score == pytest.approx(naive_viterbi(scores, transitions))
        # Its phones, aligned, give the same score.
        edges = transitions[-1, phones[0]] + transitions[phones[-1], -1]
        steps = transitions[phones[:-1], phones[1:]].sum()
        assert align(scores, states_of(phones))[1] + edges + steps == pytest.approx(score)


def test_edit_distance_against_its_definition():
    @cache
    def naive(a, b):
        if not a or not b:
            return len(a) + len(b)
        kept = naive(a[1:], b[1:]) + (a[0] != b[0])
        return min(kept, naive(a[1:], b) + 1, naive(a, b[1:]) + 1)

    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b = (rng.integers(0, 3, rng.integers(0, 8)) for _ in range(2))
        assert edit_distance(a, b) == naive(tuple(a), tuple(b))


def test_bigram():
    language = np.exp(bigram([np.array([0, 1]), np.array([0, 0, 1])], 3))
    np.testing.assert_allclose(language.sum(axis=1), 1)
    # After phone 0 came 1 twice and 0 once: two kinds were seen, and one share is for others.
    overall = (np.array([3, 2, 0, 2]) + 0.5) / 9
    np.testing.assert_allclose(language[0], (np.array([1, 2, 0, 0]) + 3 * overall) / 6)
    np.testing.assert_allclose(language[2], overall)
    assert language[-1].argmax() == 0
    assert language[1].argmax() == 3


# Acoustic models.


@pytest.fixture
def frames():
    rng = np.random.default_rng(0)
    centres = 2 * rng.standard_normal((4, 3))
    which = rng.integers(0, 4, 3000)
    return (centres[which] + rng.standard_normal((3000, 3)) * [1, 0.5, 2]).astype(np.float32)


def test_scores_are_log_densities_of_mixtures(frames):
    rng = np.random.default_rng(1)
    mixtures = [
        Mixture(
            np.log(rng.dirichlet(np.ones(k))),
            rng.standard_normal((k, 3)),
            rng.uniform(0.5, 2, (k, 3)),
        )
        for k in (1, 3, 2)
    ]
    naive = [
        logsumexp(
            [
                weight + multivariate_normal(mean, np.diag(variance)).logpdf(frames)
                for weight, mean, variance in zip(
                    one.weights, one.means, one.variances, strict=True
                )
            ],
            axis=0,
        )
        for one in mixtures
    ]
    np.testing.assert_allclose(Mixtures(mixtures).scores(frames), np.transpose(naive), atol=1e-3)


def test_the_likelihood_rises_with_every_step_and_splitting(frames):
    mixture = Mixture.single(frames.mean(axis=0), frames.var(axis=0))
    found = []
    for size in (1, 2, 4, 8):
        mixture = mixture.split(size)
        for _ in range(20):
            mixture, likelihood = mixture.improved(frames, 0.0)
            found.append(likelihood)
        steps = np.diff(found[-20:])
        assert (steps > -1e-5 * abs(likelihood)).all()
        assert np.exp(mixture.weights).sum() == pytest.approx(1)
    assert found[19] < found[39] < found[59]


def test_splitting_replaces_the_heaviest():
    mixture = Mixture(np.log([0.7, 0.3]), np.array([[0.0], [5.0]]), np.array([[1.0], [4.0]]))
    split = mixture.split(3)
    np.testing.assert_allclose(np.exp(split.weights), [0.35, 0.3, 0.35])
    np.testing.assert_allclose(split.means.ravel(), [-0.2, 5, 0.2])
    assert len(mixture.split(2).weights) == 2
    assert len(mixture.split(1).weights) == 2


def test_gaussians_with_few_frames_are_dropped(frames):
    far = np.full((1, 3), 100.0)
    mixture = Mixture(
        np.log([0.5, 0.5]), np.vstack([frames.mean(axis=0)[None], far]), np.ones((2, 3))
    )
    improved, _ = mixture.improved(frames, 0.01)
    assert improved.weights.tolist() == [0.0]


def test_states_without_frames_get_a_model(frames):
    states = np.arange(len(frames)) % 2
    for kind in acoustic.FITTED:
        scores = acoustic.FITTED[kind](frames, states, 3).scores(frames)
        assert scores.shape == (3000, 3)
        assert np.isfinite(scores).all()
    model = acoustic.grown(None, frames, states, 3, 1)
    assert np.isfinite(model.scores(frames)).all()


@pytest.fixture
def three_states():
    rng = np.random.default_rng(0)
    states = rng.integers(0, 3, 6000)
    mixing = rng.standard_normal((3, 3, 3))
    means = 2 * rng.standard_normal((3, 3))
    noise = rng.standard_normal((6000, 3))
    return noise, states, mixing, means


def test_full_covariances(three_states):
    noise, states, mixing, means = three_states
    frames = (means[states] + np.einsum("ni,nij->nj", noise, mixing[states])).astype(np.float32)
    found = acoustic.fit_full(frames, states, 3).scores(frames)
    own = [frames[states == s].astype(float) for s in range(3)]
    scatters = [np.cov(some, rowvar=False, ddof=0) * len(some) for some in own]
    shared = sum(scatters) / len(frames)
    prior = acoustic.PRIOR_FRAMES
    for s in range(3):
        covariance = (scatters[s] + prior * shared) / (len(own[s]) + prior)
        naive = multivariate_normal(own[s].mean(axis=0), covariance).logpdf(frames)
        naive += 1.5 * np.log(2 * np.pi)  # the same for all states, and left out
        np.testing.assert_allclose(found[:, s], naive, rtol=0.01, atol=0.05)


def test_a_shared_covariance(three_states):
    noise, states, mixing, means = three_states
    frames = (means[states] + noise @ mixing[0]).astype(np.float32)
    model = acoustic.fit_shared(frames, states, 3)
    naive = np.transpose(
        [multivariate_normal(m, mixing[0].T @ mixing[0]).logpdf(frames) for m in means]
    )
    agree = (model.scores(frames).argmax(axis=1) == naive.argmax(axis=1)).mean()
    assert agree > 0.93


def test_softmax_against_scikit_learn(three_states):
    noise, states, mixing, means = three_states
    frames = (means[states] / 2 + 2 * noise @ mixing[0] + 50).astype(np.float32)
    model = acoustic.fit_softmax(frames, states, 3)
    exact = LogisticRegression(C=1e3, max_iter=1000).fit(frames, states).predict_log_proba(frames)
    found = model.scores(frames) + model.log_frequency
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1, rtol=1e-4)
    rows = np.arange(len(frames))
    loss, lowest = -found[rows, states].mean(), -exact[rows, states].mean()
    assert loss < 1.01 * lowest
    np.testing.assert_allclose(
        np.exp(model.log_frequency), np.bincount(states) / len(states), rtol=1e-5
    )


# Training and error rates.


def spoken(n=40, n_phones=5, seed=0):
    """Utterances whose states are known, and these states."""
    rng = np.random.default_rng(seed)
    means = 3 * np.random.default_rng(99).standard_normal((3 * n_phones, 4))
    paths = []
    for _ in range(n):
        phones = rng.integers(0, n_phones, 8)
        phones = phones[np.r_[True, phones[1:] != phones[:-1]]]
        paths.append(np.repeat(states_of(phones), rng.integers(2, 6, 3 * len(phones))))
    states = np.concatenate(paths)
    frames = means[states] + rng.standard_normal((len(states), 4))
    bounds = np.r_[0, np.cumsum([len(path) for path in paths])]
    return Utterances(frames.astype(np.float32), states // 3, bounds), states


def test_training_finds_the_states_that_made_the_frames():
    utterances, states = spoken()
    start = (even_states(utterances) == states).mean()
    _, found = train_gmm(utterances, 5, largest=2)
    assert start < 0.85
    assert (found == states).mean() > 0.97


def test_an_utterance_with_fewer_frames_than_states_keeps_its_states():
    utterances, _ = spoken(20)
    labels = utterances.labels.copy()
    first = slice(0, utterances.bounds[1])
    labels[first] = np.arange(first.stop) % 5
    model, _ = train_gmm(utterances, 5, largest=1)
    hasty = replace(utterances, labels=labels)
    states = even_states(hasty)
    found = recogniser.realigned(model, hasty, states)
    assert (found[first] == states[first]).all()
    assert (found != states).any()


@pytest.mark.parametrize("kind", acoustic.ACOUSTIC)
def test_recognition_of_other_utterances(kind):
    utterances, states = spoken()
    test, _ = spoken(10, seed=1)
    made = recogniser.train(utterances, 5, (), kind, None if kind == "gmm" else states)
    tuned, rate = made.tuned(spoken(10, seed=2)[0])
    assert rate < 0.05
    errors = tuned.errors(test)
    assert errors.rate < 0.05
    assert errors.phones.tolist() == [len(phones) for phones in test.phones()]


def test_tuning_takes_the_lowest_rate_that_it_tried():
    utterances, _ = spoken(20)
    noisy = utterances.with_frames(
        utterances.frames
        + 3 * np.random.default_rng(0).standard_normal(utterances.frames.shape).astype(np.float32)
    )
    made = recogniser.train(noisy, 5, ())
    tuned, rate = made.tuned(noisy)
    assert tuned.errors(noisy).rate == rate
    for scale in recogniser.SCALES:
        assert rate <= replace(made, scale=scale).errors(noisy).rate


def test_phones_that_do_not_count_are_left_out_of_both():
    utterances, _ = spoken(5)
    made = recogniser.train(utterances, 5, (0, 3))
    errors = made.errors(utterances)
    kept = [int((~np.isin(phones, (0, 3))).sum()) for phones in utterances.phones()]
    assert errors.phones.tolist() == kept
    assert not np.isin(made.recognise(made.model.scores(utterances.frames[:50])), (0, 3)).any()


def test_standard_errors():
    rng = np.random.default_rng(0)
    phones = rng.integers(20, 40, 400)
    hard = rng.uniform(0.2, 0.5, 400)  # for every recogniser
    one, other = (Errors(rng.binomial(phones, hard), phones) for _ in range(2))
    shares = one.errors - one.rate * phones
    analytic = np.sqrt((shares**2).sum()) / phones.sum()
    assert one.standard_error() == pytest.approx(analytic, rel=0.1)
    paired = one.standard_error_of_difference(other)
    assert paired < np.hypot(one.standard_error(), other.standard_error())
    assert one.standard_error_of_difference(one) == 0
    both = Errors.joined([one, other])
    assert both.rate == pytest.approx((one.rate + other.rate) / 2)
    with pytest.raises(ValueError, match="cannot be paired"):
        one.standard_error_of_difference(Errors(one.errors, phones + 1))


def test_recognisers_are_values():
    made = Recogniser(None, np.zeros((2, 2)), ())
    assert replace(made, scale=2.0).scale == 2.0
    assert made.scale == 1.0
