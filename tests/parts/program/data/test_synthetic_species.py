"""The distribution of the synthetic species, its Bayes figures, and the data set drawn from it."""

import dataclasses
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import multivariate_normal

from tests.parts.program.data import bayes_accuracies
from topk_jax import metrics, sets
from train.data.latent_species import LATENT_SIZE
from train.data.species_model import SpeciesModel
from train.data.synthetic_species import SpeciesConfig, SyntheticSpecies
from train.foundation.errors import UserError

PARTS = ("train", "validation", "test", "integration")
SMALL = {"num_classes": 7, "num_genera": 3, "long_tail_exponent": 2.0}
phi = NormalDist().cdf


@pytest.fixture(scope="module")
def model():
    """The default distribution."""
    return SpeciesModel()


@pytest.fixture(scope="module")
def held_out(model):
    """A large test part of the default distribution: latents, labels and p(y | z)."""
    latents, labels = model.sample("test", 100_000)
    return latents, labels, model.posterior(latents)


def within(found, expected, standard_error):
    """Whether two figures agree within three standard errors: one honest test in 370 would not."""
    return abs(found - expected) <= 3 * standard_error


def standard_error(values):
    return values.std() / np.sqrt(len(values))


def distance_of_two(model):
    return float(np.linalg.norm(model.means[0] - model.means[1]))


def test_the_posterior_is_bayes_rule_on_the_gaussian_densities(model):
    latents = model.sample("validation", 20).latents
    densities = np.stack([multivariate_normal(mean).pdf(latents) for mean in model.means], axis=1)
    joint = densities * np.exp(model.log_prior)
    # Float64; the densities are computed from distances, the posterior from inner products.
    np.testing.assert_allclose(
        model.posterior(latents), joint / joint.sum(axis=1, keepdims=True), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("long_tail_exponent", [0.0, 1.5])
def test_two_classes_have_their_bayes_accuracies_in_closed_form(long_tail_exponent):
    model = SpeciesModel(
        num_classes=2, num_genera=1, ambiguity=1.3, long_tail_exponent=long_tail_exponent
    )
    distance, prior = distance_of_two(model), np.exp(model.log_prior)
    np.testing.assert_allclose(prior.max() / prior.min(), np.exp(long_tail_exponent))
    # Given class y, its log odds over the other are N(±log(π_0 / π_1) + d²/2, d²).
    centers = np.array([1, -1]) * (model.log_prior[0] - model.log_prior[1]) + distance**2 / 2

    def mean_below(border):
        return sum(p * phi((border - c) / distance) for p, c in zip(prior, centers, strict=True))

    def size(margin):
        # Both classes are kept if the log odds are within the margin, one otherwise.
        return 1 + mean_below(margin) - mean_below(-margin)

    top_1 = bayes_accuracies.top_k(model, 1)
    assert within(top_1.value, 1 - mean_below(0), top_1.standard_error)
    macro = bayes_accuracies.macro_top_k(model, 1)
    assert within(macro.value, phi(distance / 2), macro.standard_error)
    margin = brentq(lambda margin: size(margin) - 1.2, 0, 10)
    average = bayes_accuracies.average_k(model, 1.2)
    assert within(average.value, 1 - mean_below(-margin), average.standard_error)
    for best in (bayes_accuracies.top_k, bayes_accuracies.macro_top_k):
        # All classes: the sum of probabilities, which is 1 in float64.
        assert best(model, 2).value == pytest.approx(1, abs=1e-12)
    assert bayes_accuracies.average_k(model, 2).value == 1


@pytest.mark.parametrize("k", [1, 2.5])
def test_hits_of_the_bayes_sets_agree_with_the_bayes_average_k_accuracy(model, held_out, k):
    _, labels, probabilities = held_out
    scores = jnp.asarray(probabilities, jnp.float32)
    threshold = sets.average_k_threshold(scores, k=k)
    hits = np.asarray(metrics.threshold_hits(scores, jnp.asarray(labels), threshold))
    bayes = bayes_accuracies.average_k(model, k)
    # Counting has the larger error by far, including the choice of the threshold on the sample.
    assert within(hits.mean(), bayes.value, np.hypot(standard_error(hits), bayes.standard_error))


@pytest.mark.parametrize("k", [1, 3])
def test_hits_of_the_best_macro_sets_agree_with_the_bayes_macro_accuracy(model, held_out, k):
    _, labels, probabilities = held_out
    scores = jnp.asarray(np.log(probabilities + 1e-300) - model.log_prior)
    hits = np.asarray(metrics.top_k_hits(scores, jnp.asarray(labels), k=k))
    found = metrics.macro_accuracy(
        jnp.asarray(hits), jnp.asarray(labels), num_classes=model.num_classes
    )
    # A mean of L independent frequencies, each of n_y hits or misses; at most 1/4 n_y of variance.
    counts = np.bincount(labels, minlength=model.num_classes)
    rates = np.bincount(labels, hits, minlength=model.num_classes) / counts
    error = np.sqrt((rates * (1 - rates) / counts).sum()) / model.num_classes
    bayes = bayes_accuracies.macro_top_k(model, k)
    assert within(float(found), bayes.value, np.hypot(error, bayes.standard_error))


def test_the_default_figures_are_of_the_difficulty_that_is_told(model):
    figures = {
        "top_1": (bayes_accuracies.top_k(model, 1), 0.785),
        "top_3": (bayes_accuracies.top_k(model, 3), 0.957),
        "top_5": (bayes_accuracies.top_k(model, 5), 0.984),
        "macro_top_1": (bayes_accuracies.macro_top_k(model, 1), 0.633),
        "average_5": (bayes_accuracies.average_k(model, 5), 0.995),
    }
    for name, (found, told) in figures.items():
        # Three decimals, and the computer's own rounding, which changes no decimal but a tie.
        assert found.value == pytest.approx(told, abs=6e-4), name
        assert found.standard_error < 7e-4, name


@pytest.mark.parametrize(
    ("parameters", "largest_error"),
    # Rounding errs by √(1/12) grey levels a coordinate, over some 220 a unit: 0.0013.
    [({}, 0.002), ({"ambiguity": 0.01}, 0.1), ({"ambiguity": 100.0, **SMALL}, 0.002)],
)
def test_the_latent_is_recovered_from_the_image(parameters, largest_error):
    model = SpeciesModel(**parameters)
    latents = model.sample("test", 1000).latents
    images = model.render(latents)
    assert images.shape == (1000, 32, 32, 3)
    assert images.dtype == np.uint8
    errors = model.latents(images) - latents
    assert np.sqrt((errors**2).mean()) < largest_error
    # The patterns leave room: hardly a pixel is cut off.
    assert ((images == 0) | (images == 255)).mean() < 1e-4
    # And they fill the grey levels.
    assert images.min() < 40
    assert images.max() > 215


def test_a_rare_class_far_from_the_others_is_not_cut_off():
    """It adds little to the deviation that the grey levels are measured in."""
    model = SpeciesModel(num_classes=2, num_genera=1, ambiguity=0.01)
    labels = np.arange(400) % 2
    latents = model.means[labels] + np.random.default_rng(0).normal(size=(400, LATENT_SIZE))
    recovered = model.bayes_probabilities(model.render(latents))
    # Two hundred deviations apart: neither is ever mistaken for the other.
    np.testing.assert_array_equal(recovered.argmax(axis=1), labels)


def test_channel_statistics_are_those_of_the_images(model):
    images = model.render(model.sample("validation", 5000).latents) / 255
    # 16 latent numbers of 5,000 images: a few thousandths of the deviation.
    np.testing.assert_allclose(images.mean(axis=(0, 1, 2)), model.channel_mean, atol=2e-3)
    np.testing.assert_allclose(images.std(axis=(0, 1, 2)), model.channel_std, rtol=0.02)


@pytest.mark.parametrize("part", PARTS)
def test_latents_are_standard_normal_about_the_mean_of_their_class(part):
    model = SpeciesModel(**SMALL)
    latents, labels = model.sample(part, 20_000)
    noise = latents - model.means[labels]
    # Bounds of 4.5 deviations on some 150 entries: one honest sample in a thousand exceeds them.
    assert abs(noise.mean(axis=0)).max() < 4.5 / np.sqrt(20_000)
    assert abs(noise.T @ noise / 20_000 - np.eye(LATENT_SIZE)).max() < 4.5 * np.sqrt(2 / 20_000)
    # Also for neighbours in the order, and for the label.
    assert abs(noise[1:].T @ noise[:-1] / 20_000).max() < 4.5 / np.sqrt(20_000)
    assert abs(noise.T @ (labels - labels.mean()) / 20_000 / labels.std()).max() < 0.032


@pytest.mark.parametrize("part", PARTS[1:])
def test_labels_outside_the_training_part_are_drawn_from_the_prior(part):
    model = SpeciesModel(**SMALL)
    labels = model.sample(part, 20_000).labels
    prior = np.exp(model.log_prior)
    counts = np.bincount(labels, minlength=7)
    # Pearson's statistic of 6 degrees of freedom exceeds 22.5 once in a thousand times.
    assert ((counts - 20_000 * prior) ** 2 / (20_000 * prior)).sum() < 22.5
    # Independent: repeats of the label before are as frequent as they should be.
    repeats = (labels[1:] == labels[:-1]).mean()
    rate = (prior**2).sum()
    assert within(repeats, rate, np.sqrt(rate / 20_000) * 1.5)


@pytest.mark.parametrize("num_examples", [100, 1000, 20_000])
def test_training_counts_follow_the_prior_as_closely_as_integers_can(model, num_examples):
    counts = np.bincount(model.train_labels(num_examples), minlength=100)
    assert counts.sum() == num_examples
    assert counts.min() >= 1
    # No example could go to another class that has less of what is its due: the rule's optimality.
    prior = np.exp(model.log_prior)
    given = ((counts - 0.5) / prior)[counts > 1]
    refused = ((counts + 0.5) / prior).min()
    assert given.size == 0 or given.max() <= refused
    if num_examples == 20_000:
        assert abs(counts - 20_000 * prior).max() < 1
        assert (counts.min(), counts.max()) == (3, 1179)


def test_the_prior_falls_geometrically_over_the_classes():
    model = SpeciesModel(num_classes=11, num_genera=2, long_tail_exponent=4.0)
    log_prior = np.sort(model.log_prior)
    np.testing.assert_allclose(np.diff(log_prior), 0.4, rtol=1e-12)
    np.testing.assert_allclose(np.exp(log_prior).sum(), 1, rtol=1e-12)
    # Ranks are mixed among the genera: neither the given order nor its reverse.
    assert len(np.unique(np.sign(np.diff(model.log_prior)))) == 2
    balanced = dataclasses.replace(model, long_tail_exponent=0)
    np.testing.assert_array_equal(np.bincount(balanced.train_labels(110)), 10)


def test_distances_are_those_that_the_parameters_say():
    model = SpeciesModel(num_classes=800, num_genera=200, ambiguity=0.5)
    means = model.means.reshape(200, 4, LATENT_SIZE)

    def root_mean_square(points):
        # Twice the unbiased variance is the mean squared distance of two.
        return np.sqrt(2 * points.var(axis=-2, ddof=1).sum(axis=-1).mean())

    # 600 · 16 squares of species, 199 · 16 of genera: deviations of 0.7 % and 1.3 % of the root.
    assert root_mean_square(means) == pytest.approx(2 / 0.5, rel=0.03)
    of_genera = root_mean_square(means.mean(axis=1)) ** 2 - 4.0**2 / 4
    assert np.sqrt(of_genera) == pytest.approx(5.5, rel=0.06)


@pytest.mark.parametrize(("num_classes", "num_genera"), [(100, 20), (7, 3)])
def test_genera_and_names(num_classes, num_genera):
    model = SpeciesModel(num_classes=num_classes, num_genera=num_genera)
    sizes = np.bincount(model.genera)
    assert len(sizes) == num_genera
    assert sizes.max() - sizes.min() <= 1
    assert len(set(model.class_names)) == num_classes
    for genus, name in zip(model.genera, model.class_names, strict=True):
        assert name.startswith(f"genus_{genus:02d} species_")
    assert model.class_names[0] == "genus_00 species_00"
    assert model.class_names[-1] == f"genus_{num_genera - 1:02d} species_{sizes[-1] - 1:02d}"


def test_the_distribution_does_not_change_between_versions(model):
    """A data set on disk would no longer be of the distribution of its posterior."""
    drawn = [model.sample(part, 1).latents[0, 0] for part in PARTS]
    # Known to the last bit but one: sums and products of float64, with a library's logarithms.
    np.testing.assert_allclose(
        drawn,
        [0.419595540990839, 1.1280955412224407, 3.851866762684737, 0.585040987169668],
        rtol=1e-12,
    )
    np.testing.assert_allclose(model.log_prior[0], -6.588750415681131, rtol=1e-12)
    np.testing.assert_array_equal(model.sample("test", 5).labels, [16, 37, 87, 3, 13])
    np.testing.assert_array_equal(
        model.render(model.sample("test", 1).latents)[0, 0, :2], [[128, 92, 148], [113, 77, 168]]
    )


def small_config(**changes):
    model = SpeciesModel(**{**SMALL, "seed": 3})
    return SpeciesConfig(
        **{"model": model, "num_train": 60, "num_validation": 20, "num_test": 30, **changes}
    )


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("data"))
    with pytest.MonkeyPatch.context() as patch:
        # Several chunks a part, the last not full.
        patch.setattr("train.data.synthetic_species.CHUNK_SIZE", 16)
        open_builder(folder).download_and_prepare()
    return folder


def open_builder(data_dir, **changes):
    return SyntheticSpecies(
        config=small_config(**changes), data_dir=data_dir, file_format="array_record"
    )


@pytest.mark.parametrize(("part", "size"), [("train", 60), ("validation", 20), ("test", 30)])
def test_the_prepared_data_set_holds_the_examples_of_the_law(data_dir, part, size):
    builder = open_builder(data_dir)
    assert builder.is_prepared()
    model = builder.builder_config.model
    latents, labels = model.sample(part, size)
    expected = zip(labels.tolist(), model.render(latents), strict=True)
    source = builder.as_data_source(part)
    found = [(int(source[i]["label"]), source[i]["image"].tobytes()) for i in range(len(source))]
    assert sorted(found) == sorted((label, image.tobytes()) for label, image in expected)


def test_other_parameters_lie_in_another_folder(tmp_path):
    default = SyntheticSpecies(data_dir=str(tmp_path))
    assert default.builder_config.name == SpeciesConfig().name
    configs = [
        SpeciesConfig(**{size: 7000}) for size in ("num_train", "num_validation", "num_test")
    ]
    changes = {
        "num_classes": 99,
        "num_genera": 19,
        "ambiguity": 0.8000001,
        "long_tail_exponent": 5.5,
        "seed": 1,
    }
    for name, value in changes.items():
        configs.append(SpeciesConfig(model=SpeciesModel(**{name: value})))
    folders = {
        SyntheticSpecies(data_dir=str(tmp_path), config=config).data_dir for config in configs
    }
    assert len(folders | {default.data_dir}) == len(configs) + 1
    # An integer is the same number.
    model = SpeciesModel(long_tail_exponent=6)
    assert SpeciesConfig(model=model).name == SpeciesConfig().name


@pytest.mark.parametrize(
    "field", ["num_classes", "num_genera", "ambiguity", "long_tail_exponent", "seed", "num_train"]
)
def test_wrong_parameters_are_named(field):
    kind = SpeciesConfig if field == "num_train" else SpeciesModel
    with pytest.raises(UserError, match=f"^{field} .* got -1"):
        kind(**{field: -1})
