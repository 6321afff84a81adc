"""What every rule of `topk_jax.rules` promises, over the registry: limits and sets of a float64
reference; its coverage on drawn data; one text; the same sets after JSON, under `jit`, exported for
any number of examples; one line for a mistake.
"""

import dataclasses
import functools
import json
import math

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.cases.trees import families
from topk_jax import rules, sets

NUM_CLASSES, NUM_EXAMPLES = 6, 90
TAXONOMY = families(NUM_CLASSES)
COUNTS = np.array([90, 40, 20, 20, 15, 10])
COSTS = np.array([1.0, 0.5, 2.0, 1.0, 0.25, 1.0])
SIMILAR = np.minimum(COSTS[:, None], 0.125 * np.abs(np.subtract.outer(*[np.arange(6)] * 2)))
GIVEN = {"class_counts": COUNTS, "taxonomy": TAXONOMY}
WIDENED = ("coverage=0.8, max_names=2", "top_k=3, max_names=1")
NEW = "coverage=0.8, rule=aps, new_score=energy"
RULES = (
    *("top_k=2", "threshold=0.25", "average_k=1.5", "adaptive=0.9"),
    *("average_error=0.875", "max_error=0.5"),
    *(f"coverage=0.8, rule={name}" for name in rules.CONFORMAL if name != "lac"),
    *("coverage=0.8", "utility=u65", "utility=reject=0.5,1", "utility=1,0.75,0.5"),
    *("risk=0.22, costs=missed", "risk=0.5, costs=macro", "risk=0.2, costs=taxonomy"),
    # The limit is the score of an unlikely class.
    *("risk=0.25, costs=mine", "coverage=0.98, rule=raps"),
)
every_rule = pytest.mark.parametrize("text", [*RULES, *WIDENED, NEW])


@functools.cache
def drawn(num_examples=NUM_EXAMPLES, seed=0):
    """Probabilities of exact sums, many of them equal, and labels that mostly follow them."""
    rng = np.random.default_rng(seed)
    of_classes = rng.dirichlet(np.ones(NUM_CLASSES) / 2, num_examples)
    probabilities = np.stack([rng.multinomial(64, row) for row in of_classes]) / 64
    labels = np.array([rng.choice(NUM_CLASSES, p=row) for row in probabilities])
    return probabilities.astype(np.float32), labels, rng.normal(size=num_examples).astype("f4")


def fitted(text, scores=None, labels=None, outliers=None, **more):
    if scores is None:
        scores, labels, outliers = drawn()
    costs = {"costs": COSTS, "similar": SIMILAR} if "mine" in text else {}
    return rules.fit(text, scores, labels, outliers=outliers, **GIVEN | costs | more)


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        if one is not None or other is not None:
            np.testing.assert_array_equal(one, other)


def reference_scores(name, probabilities):
    if name == "taxonomic":
        return reference.node_scores(probabilities, TAXONOMY)
    kind = {
        "raps": {"kind": "raps", "rank_penalty": 0.01, "unpenalized_ranks": 5},
        "saps": {"kind": "saps", "rank_penalty": 0.2},
        "pas": {"kind": "pas", "class_counts": COUNTS},
    }.get(name, {"kind": name if name in ("aps", "margin") else "lac"})
    return reference.conformal_scores(probabilities, **kind)


def reference_quantiles(name, scores, labels, error):
    own = scores[np.arange(len(labels)), labels]
    if name == "class_conditional":
        return reference.class_conditional_quantiles(scores, labels, error=error)
    if name == "interpolated":
        return reference.interpolated_quantiles(scores, labels, error=error, weight=0.5)
    if name == "clustered":
        # Its reference tries all clusters; here only their use is at stake.
        given = {"key": jax.random.key(0), "error": error, "num_classes": NUM_CLASSES}
        return np.asarray(sets.clustered_quantiles(own.astype(np.float32), labels, **given))
    return reference.conformal_quantile(own, error=error)


def reference_risk(probabilities, labels, risk, name):
    """The largest score at which the costs of all sets, and one more, are at most the risk."""
    costs, similar = {
        "missed": (np.ones(NUM_CLASSES), None),
        "macro": (COUNTS.sum() / (NUM_CLASSES * COUNTS), None),
        "taxonomy": (np.ones(NUM_CLASSES), heights()),
        "mine": (COSTS, SIMILAR),
    }[name]
    if similar is None:
        similar = costs[:, None] * (1 - np.eye(NUM_CLASSES))
    for threshold in np.unique(probabilities)[::-1]:
        total = costs.max()
        for row, label in zip(probabilities, labels, strict=True):
            total += min([costs[label], *similar[label][row >= threshold]])
        if total <= risk * (len(labels) + 1) + 1e-9:
            return threshold
    raise AssertionError


def heights():
    each = np.arange(NUM_CLASSES)
    return np.array(
        [reference.mistake_heights(each, np.full(NUM_CLASSES, one), TAXONOMY) for one in each]
    ) / max(reference.height(TAXONOMY, node) for node in range(TAXONOMY.num_nodes))


def reference_of(rule, probabilities, labels):
    """The limits, and the sets of the same examples."""
    value = rule.value
    if rule.name == "coverage":
        error = round(1 - value, 9)
        scores = reference_scores(rule.conformal, probabilities)
        limits = reference_quantiles(rule.conformal, scores, labels, error)
        members = scores <= np.where(np.isinf(limits), np.inf, limits + 1e-6)
        return (1 - limits if rule.conformal == "lac" else limits), members
    if rule.name == "utility":
        worth = {
            "1,0.75,0.5": lambda **_: np.array([1, 0.75, 0.5, 0, 0, 0]),
            "u65": functools.partial(reference.set_utilities, "u65"),
            "reject=0.5,1": functools.partial(reference.set_utilities, "reject", alpha=0.5, beta=1),
        }[value](num_classes=NUM_CLASSES)
        return None, reference.utility_set(probabilities, utilities=worth)
    members = {
        "adaptive": lambda: reference.adaptive_set(probabilities, error=1 - value - 1e-9),
        "threshold": lambda: reference.threshold_set(probabilities, value),
        "top_k": lambda: reference.top_k_set(probabilities, k=value),
    }
    if rule.name in members:
        return None, members[rule.name]()
    if rule.name == "max_error":
        first, largest = reference.top_k_set(probabilities, k=1), probabilities.max(axis=-1)
        hits = first[np.arange(len(labels)), labels]
        limit = reference.selective_threshold(largest, hits, error=value, delta=0.05)
        return limit, first & (largest > limit)[:, None]
    limit = {
        "average_k": lambda: reference.average_k_threshold(probabilities, k=value),
        "average_error": lambda: reference.average_error_threshold(probabilities, error=1 - value),
        "risk": lambda: reference_risk(probabilities, labels, value, rule.costs),
    }[rule.name]()
    return limit, reference.threshold_set(probabilities, limit)


@pytest.mark.parametrize("text", RULES)
def test_limits_and_sets_are_those_of_the_reference(text):
    probabilities, labels, _ = drawn()
    rule = fitted(text)
    limits, members = reference_of(rule, probabilities.astype(np.float64), labels)
    assert (limits is None) == (not rule.needs_limits) == (rule.limits is None)
    if limits is not None:
        np.testing.assert_allclose(rule.limits, limits, rtol=0, atol=1e-6)
    ours = rule(probabilities)
    np.testing.assert_array_equal(ours, members)
    np.testing.assert_array_equal(rule(probabilities[5]), ours[5])
    np.testing.assert_array_equal(rule(probabilities.reshape(9, 10, -1)), ours.reshape(9, 10, -1))
    for other in (np.float64, jnp.bfloat16):
        np.testing.assert_array_equal(
            fitted(text, probabilities.astype(other), labels).limits, rule.limits
        )


def test_every_kind_has_a_case():
    found = [rules.parse(text) for text in RULES]
    assert {one.name for one in found} == {*rules.KINDS}
    assert {one.conformal for one in found} - {None} == {*rules.CONFORMAL}


@every_rule
def test_a_rule_is_the_same_in_every_form(text):
    probabilities, _, outliers = drawn(seed=1)
    rule = fitted(text)
    answer = rule.answer(probabilities, outliers)
    assert (answer.nodes is None) == (not rule.has_names)
    assert (answer.none_of_these is None) == (not rule.says_new)
    assert str(rule) == str(rules.parse(str(rule))) == text
    plain = json.loads(json.dumps(rule.to_json(), allow_nan=False))
    again = rules.from_json(plain, taxonomy=TAXONOMY)
    assert again.to_json() == plain
    assert plain["in_words"] == rule.in_words
    assert again.calibrated_on == rule.calibrated_on
    assert_same(again.answer(probabilities, outliers), answer)
    of_one = jax.vmap(lambda row, outlier: tuple(rule.answer(row, outlier)))
    assert_same(of_one(probabilities, outliers), answer)
    # Limits are arguments of a compiled function; it is not compiled again for others.
    compiled = jax.jit(lambda rule, *given: tuple(rule.answer(*given)))
    assert_same(compiled(rule, probabilities, outliers), answer)
    compiled(jax.tree.map(lambda leaf: leaf * 0.5, rule), probabilities, outliers)
    assert compiled._cache_size() == 1
    (any_number,) = jax.export.symbolic_shape("n")
    program = jax.export.export(
        jax.jit(lambda *given: tuple(again.answer(*given))), platforms=("cpu", "cuda", "tpu")
    )(
        jax.ShapeDtypeStruct((any_number, NUM_CLASSES), jnp.float32),
        jax.ShapeDtypeStruct((any_number,), jnp.float32),
    )
    read = jax.export.deserialize(program.serialize())
    for number in (1, NUM_EXAMPLES):
        found = read.call(probabilities[:number], outliers[:number])
        assert_same(found, [one if one is None else one[:number] for one in answer])


@pytest.mark.parametrize("text", [*(text for text in RULES if "coverage" in text), "risk=0.2"])
def test_a_promise_is_kept_on_new_data(text):
    promised, seen, of_classes = None, [], []
    for seed in range(2, 32):
        rule = fitted(text, *drawn(seed=seed))
        promised = rule.promise.coverage
        probabilities, labels, _ = drawn(400, seed=1)
        hits = np.asarray(rule(probabilities))[np.arange(400), labels]
        seen.append(hits.mean())
        of_classes.append([hits[labels == one].mean() for one in range(NUM_CLASSES)])
    # The mean of 30 calibrations, on 400 examples, varies by 0.02.
    assert np.mean(seen) > promised - 0.04
    if rule.conformal == "class_conditional":
        assert np.mean(of_classes, axis=0).min() > promised - 0.08


def test_sets_with_names_are_widened_as_little_as_possible():
    probabilities, _, _ = drawn(seed=1)
    narrow, wide = (fitted(text) for text in ("coverage=0.8", WIDENED[0]))
    nodes = reference.fewest_names(np.asarray(narrow(probabilities)), TAXONOMY, names=2)
    np.testing.assert_array_equal(wide(probabilities), reference.node_set(nodes, TAXONOMY))
    assert wide.promise == narrow.promise
    assert "at most 2 names, each a species" in wide.describe(names="a species")


def test_none_of_these_has_half_of_the_error():
    probabilities, labels, outliers = drawn()
    rule, classes = fitted(NEW), fitted("aps=0.9")
    error = 0.05
    assert rule.known_to == reference.conformal_quantile(outliers, error=error)
    once = np.bincount(labels)[labels] == 1
    assert rule.new_from == reference.new_class_threshold(outliers, once, error=error)
    np.testing.assert_array_equal(rule.limits, classes.limits)
    members, _, none_of_these = rule.answer(probabilities, outliers)
    limits = {"known_to": rule.known_to, "new_from": rule.new_from}
    expected = reference.open_set(np.asarray(classes(probabilities)), outliers, **limits)
    np.testing.assert_array_equal(members, expected[:, :-1])
    is_empty = ~expected[:, :-1].any(axis=1)
    np.testing.assert_array_equal(none_of_these, expected[:, -1] | is_empty)
    assert rule.promise.coverage == 0.8
    assert "outlier score of its example, energy, exceeds" in rule.in_words
    # No class has only one example, so new classes are rarer than the error.
    assert rule.new_from == np.inf
    assert "or if it has no class. For all" in rule.in_words
    beside = dataclasses.replace(rule, new_from=np.float32(0.5)).in_words
    assert "or if it has no class; and it has 'none of these' beside its classes" in beside


@pytest.mark.parametrize("name", ["lac", "aps", "class_conditional"])
def test_votes_count_by_their_shares(name):
    probabilities, labels, _ = drawn()
    classes = np.stack([labels, (labels + 1) % NUM_CLASSES, labels], axis=1)
    shares = np.tile(np.array([0.75, 0.25, 0.0], np.float32), (NUM_EXAMPLES, 1))
    rule = fitted(f"{name}=0.8", probabilities, classes, shares=shares)
    scores = reference_scores(name, probabilities.astype(np.float64))
    if name == "class_conditional":
        drawn_labels = np.where(
            np.random.default_rng(20261125).random(NUM_EXAMPLES) < 0.75, *classes.T[:2]
        )
        expected = reference_quantiles(name, scores, drawn_labels, 0.2)
    else:
        plausibilities = (
            0.75 * np.eye(NUM_CLASSES)[labels] + 0.25 * np.eye(NUM_CLASSES)[classes[:, 1]]
        )
        expected = reference.vote_quantile(scores, plausibilities, error=0.2)
    limits = 1 - rule.limits if name == "lac" else rule.limits
    np.testing.assert_allclose(limits, expected, rtol=0, atol=1e-6)
    # Places without a share have any class.
    classes[:, 2] = NUM_CLASSES
    again = fitted(f"{name}=0.8", probabilities, classes, shares=shares)
    np.testing.assert_array_equal(again.limits, rule.limits)
    # A class without votes is a label.
    alone = fitted(f"{name}=0.8", probabilities, labels[:, None], shares=np.ones((NUM_EXAMPLES, 1)))
    np.testing.assert_array_equal(alone.limits, fitted(f"{name}=0.8").limits)


@pytest.mark.parametrize("text", ["average_k=1.5", "coverage=0.9", "raps=0.9", "max_error=0.6"])
def test_scores_in_a_file_are_read_in_parts(text, tmp_path):
    probabilities, labels, _ = drawn(9000)
    np.save(tmp_path / "p.npy", probabilities)
    rule = fitted(text, np.load(tmp_path / "p.npy", mmap_mode="r"), labels)
    limit, _ = reference_of(rule, probabilities.astype(np.float64), labels)
    np.testing.assert_allclose(rule.limits, limit, rtol=0, atol=1e-6)


def test_groups_and_the_law_of_a_coverage():
    groups = np.repeat(["a", "b", "c"], [10, 30, 50])
    on = fitted("coverage=0.8", groups=groups, on="the first half").calibrated_on
    assert (on.examples, on.groups, on.on) == (90, 90**2 / (100 + 900 + 2500), "the first half")
    # The 73rd of 90 scores is the limit.
    assert rules.CalibratedOn(90, 90.0, "").law(0.8) == (73, 18)
    assert rules.CalibratedOn(90, 45.0, "").law(0.8) == (36.5, 9.5)
    assert rules.CalibratedOn(90, 90.0, "").law(0.999) is None


def test_infinite_limits_are_kept():
    probabilities, labels, _ = drawn()
    labels = np.where(labels == 5, 0, labels)
    rule = fitted("class_conditional=0.8", probabilities, labels)
    again = rules.from_json(json.loads(json.dumps(rule.to_json(), allow_nan=False)))
    assert again.limits[5] == rule.limits[5] == math.inf
    assert "Classes with too few of these examples for that are in every set: 1." in again.in_words
    whole = fitted(f"average_k={NUM_CLASSES}")
    assert rules.from_json(whole.to_json())(probabilities).all()
    assert "every class" in whole.in_words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topk=5", "a rule must start with one of coverage=…, "),
        ("top_k=0", "top_k must be an integer of at least 1; got '0'"),
        ("average_k=0.5", "average_k must be a number of at least 1"),
        ("coverage=nan", "coverage must be a number above 0 and below 1; got 'nan'"),
        ("risk=-1, costs=missed", "risk must be a number above 0"),
        ("utility=u66", "utility must be one of precision, f1, u65, u80, f_beta=BETA"),
        ("utility=reject=2,1", "utility must be one of"),
        ("utility=0,0", "utility must be one of"),
        ("coverage=0.9, rule=apps", "rule must be one of lac, aps"),
        ("aps=0.9, rule=lac", "coverage may be followed by rule=…, max_names=…, "),
        ("top_k=5, rule=aps", "top_k may be followed by max_names=…, each once"),
        ("coverage=0.9, new_score=", "may be followed by"),
        ("coverage=0.9, max_names=0", "max_names must be an integer of at least 1; got '0'"),
        ("taxonomic=0.9, max_names=2", "sets have one name each"),
    ],
)
def test_a_wrong_text_is_told_in_one_line(text, message):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as found:
        rules.parse(text)
    assert message in str(found.value)


SCORES, LABELS, OUTLIERS = drawn()


def few(number):
    return dict(zip(("scores", "labels", "outliers"), drawn(number), strict=True))


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        ("top_k=7", {}, "k must be from 1 to 6 (the number of classes), got 7"),
        ("average_k=7", {}, "k must be from 1 to 6 (the number of classes), got 7"),
        ("utility=1,1,1,1,1,1,1", {}, "utilities must have shape (6,), got shape (7,)"),
        ("aps=0.8", {"scores": SCORES / 2}, "scores must be probabilities that add up to 1"),
        ("margin=0.8", {"scores": SCORES * 2}, "probabilities must be from 0 to 1"),
        ("pas=0.8", {"class_counts": None}, "class_counts must be given"),
        ("pas=0.8", {"class_counts": COUNTS - 10}, "class_counts must be finite and greater"),
        ("risk=0.2, costs=macro", {"class_counts": COUNTS - 10}, "class_counts must be finite"),
        ("taxonomic=0.8", {"taxonomy": None}, "taxonomy must be given"),
        ("top_k=2, max_names=1", {"taxonomy": None}, "taxonomy must be given"),
        ("risk=0.2, costs=macro", {"class_counts": None}, "class_counts, the training"),
        ("risk=0.2, costs=taxonomy", {"taxonomy": None}, "taxonomy must be given"),
        ("risk=0.2, costs=other", {}, "costs must be given"),
        ("risk=0.2", {"costs": COSTS}, "costs must be given only for a risk whose costs have"),
        ("risk=0.2, costs=mine", {"costs": -COSTS}, "costs must be finite and at least 0, got -1"),
        ("risk=2", {}, "risk must be less than the largest cost, 1, which no set exceeds; got 2"),
        (NEW, {"outliers": None}, "outliers must be given"),
        (NEW, {"outliers": OUTLIERS * np.nan}, "must not have NaN"),
        ("coverage=0.8", {"scores": SCORES * np.nan}, "must not have NaN"),
        ("coverage=0.8", {"scores": LABELS[:, None]}, "scores must be floating-point"),
        ("coverage=0.8", {"labels": SCORES[:, 0]}, "labels must be integer"),
        ("coverage=0.8", {"labels": LABELS[1:]}, "labels must have the shape (90,)"),
        ("coverage=0.8", {"labels": LABELS + 1}, "labels must be from 0 to 5, got 6"),
        ("coverage=0.8", {"shares": np.ones((90, 2))}, "labels must have the shape (90, 2)"),
        ("coverage=0.8", {"shares": np.ones(90)}, "shares must have the shape (90, 1)"),
        ("coverage=0.8", {"taxonomy": families(5)}, "taxonomy must have the 6 classes"),
        ("coverage=0.8", {"taxonomy": "genera"}, "taxonomy must be a Taxonomy"),
        ("risk=0.2, costs=mine", {"costs": COSTS * np.inf}, "costs must be finite"),
        ("risk=0.2, costs=mine", {"costs": COSTS.astype(str)}, "costs must be numbers"),
        ("risk=0.2, costs=mine", {"costs": COSTS, "similar": SIMILAR + 1}, "similar must be 0 for"),
        ("coverage=0.9", few(5), "at least 9 examples to calibrate on; there are 5"),
        ("interpolated=0.9", few(5), "at least 9 examples of a class to calibrate on; there are 3"),
        (NEW, few(18), "the limits need at least 19 examples"),
        ("class_conditional=0.99", {}, "at least 99 examples of a class"),
        ("risk=0.01", {}, "at least 99 examples to calibrate on"),
        ("max_error=0.01", {}, "the 90 examples to calibrate on are too few or too often wrong"),
    ],
)
def test_a_wrong_argument_is_told_in_one_line(text, changes, message):
    given = {"scores": SCORES, "labels": LABELS, "outliers": OUTLIERS, **GIVEN} | changes
    with pytest.raises((ValueError, TypeError), match=r"^[^\n]+$") as found:
        rules.fit(text, **given)
    # The program puts the text in front.
    assert message in str(found.value).removeprefix(text)
    assert isinstance(found.value, rules.TooFewError) == ("examples" in message)


@pytest.mark.parametrize("text", ["coverage=0.8", "taxonomic=0.8", NEW])
def test_a_rule_without_its_limits_makes_no_sets(text):
    rule = rules.parse(text)
    assert not rule.is_fitted
    with pytest.raises(ValueError, match=r"rules\.fit"):
        rule(SCORES, outliers=OUTLIERS)
    assert "calibration examples" in rule.in_words


@pytest.mark.parametrize(
    "changes",
    [
        {"rule": "coverage=2"},
        {"limits": None},
        {"limits": "abc"},
        {"limits": [float("nan")]},
        {"calibrated_on": {"examples": 5}},
    ],
)
def test_a_damaged_rule_is_refused(changes):
    plain = fitted("coverage=0.8").to_json()
    with pytest.raises(ValueError, match=r"^the rule is damaged[^\n]+$"):
        rules.from_json(plain | changes)
    plain.pop(next(iter(changes)))
    with pytest.raises(ValueError, match=r"damaged: KeyError"):
        rules.from_json(plain)
