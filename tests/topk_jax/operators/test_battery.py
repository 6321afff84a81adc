"""What every deterministic operator goes through, and what every operator refuses."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from tests import reference
from tests.compilation import for_users
from topk_jax import operators

EPS = float(np.finfo(np.float32).eps)
# What most tests share, so that each operator is compiled once for it: one example a device.
SHAPE, K = (8, 5), 2
OTHERS = np.array([0, 2, 3, 4, 5, 6, 7])


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """An operator of (scores, k), the Jacobian of its reference for one row, and its tolerance.

    `keeps_axis`: whether the result has an axis in place of the classes'. `per_degree`: whether
    that is one of degrees, not of classes. `curved`: whether it has second derivatives. `rounding`:
    rounding errors of a value, in units of eps. `parameters`: of the operator, its reference and
    the Jacobian. `leaves_out`: how many classes more than k there must be. `has_k`: whether the
    operator takes a k.
    """

    name: str
    jacobian: Callable[..., np.ndarray]
    keeps_axis: bool
    curved: bool
    rounding: Callable[[np.ndarray, int, int], Any]
    per_degree: bool = False
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    leaves_out: int = 0
    has_k: bool = True

    def __call__(self, scores, k, **axis):
        return self._called(getattr(operators, self.name), scores, k, **axis)

    def expected(self, scores, k, axis=-1):
        values = self._called(getattr(reference, self.name), scores, k, axis=axis)
        # The reference puts the polynomials last, whatever the axis.
        return np.moveaxis(values, -1, axis) if self.per_degree else values

    def expected_jacobian(self, row, k):
        return self._called(self.jacobian, row, k)

    def _called(self, function, scores, k, **axis):
        static = (k,) if self.has_k else ()
        return function(scores, *static, **self.parameters, **axis)

    def tolerance(self, expected, k, num_classes):
        return EPS * self.rounding(np.abs(expected), k, num_classes)


CASES = [
    Case(
        "top_k_value",
        reference.top_k_value_gradient,
        keeps_axis=False,
        curved=False,
        # A selection rounds nothing.
        rounding=lambda expected, k, size: 0,
    ),
    Case(
        "top_k_sum",
        reference.top_k_sum_gradient,
        keeps_axis=False,
        curved=False,
        # k - 1 additions of scores under 6 in magnitude, each partial sum under 6 k.
        rounding=lambda expected, k, size: 6 * k * k,
    ),
    Case(
        "log_symmetric_polynomials",
        reference.log_symmetric_polynomials_gradient,
        keeps_axis=True,
        per_degree=True,
        curved=True,
        # A few roundings at each level of the tree, relative to logarithms that may cross zero.
        rounding=lambda expected, k, size: 4 * np.log2(2 * size) * np.maximum(1, expected),
    ),
    Case(
        "sparse_top",
        reference.sparse_top_jacobian,
        keeps_axis=True,
        curved=False,
        # The threshold is as exact as the sum of the coordinates below one, some eps in all.
        rounding=lambda expected, k, size: 8,
    ),
    Case(
        "lapsum_top_k",
        reference.lapsum_top_k_jacobian,
        keeps_axis=True,
        curved=True,
        parameters={"alpha": 0.7},
        # The sum of up to L tails, its logarithm, and two exponentials: some eps of a membership.
        rounding=lambda expected, k, size: 8,
    ),
    Case(
        "sinkhorn_top_k",
        reference.sinkhorn_top_k_jacobian,
        keeps_axis=True,
        curved=True,
        parameters={"epsilon": 1.6},
        # As above; the sum of the memberships is rounded, relative to its size.
        rounding=lambda expected, k, size: 8 * max(1, k / 4),
    ),
    Case(
        "sigmoid_top_k",
        reference.sigmoid_top_k_jacobian,
        keeps_axis=True,
        curved=True,
        parameters={"tau": 0.7},
        leaves_out=1,
        # The slope of a sigmoid times its argument is under 1: few roundings of that.
        rounding=lambda expected, k, size: 4,
    ),
    Case(
        "entmax",
        reference.entmax_jacobian,
        keeps_axis=True,
        curved=True,
        parameters={"alpha": 1.5},
        has_k=False,
        # A logarithm, its double, an exponential and a share of the sum, of numbers below 1.
        rounding=lambda expected, k, size: 8,
    ),
    Case(
        "p_norm_top_k",
        reference.p_norm_top_k_jacobian,
        keeps_axis=True,
        curved=True,
        parameters={"p": 1.5, "regularization": 0.75},
        # As above, of a sum that is rounded relative to its size.
        rounding=lambda expected, k, size: 8 * max(1, k / 4),
    ),
]

# What others are compared with. What is dear to compile of these is a long test.
COLLECTION = {"entmax", "lapsum_top_k", "p_norm_top_k", "sigmoid_top_k", "sinkhorn_top_k"}

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_case_dearly = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.long] * (case.name in COLLECTION), id=case.name)
        for case in CASES
    ],
)


def every_case_with(name, values):
    """Parametrises a test over the cases, and over those values with a k that the case allows."""
    return pytest.mark.parametrize(
        ("case", *name),
        [
            pytest.param(case, *value, id="-".join(map(str, (case.name, *value))))
            for case in CASES
            for value in values
            if value[-1] + case.leaves_out <= value[0]
        ],
    )


def _value(case, k, scores, axis=-1):
    return case(scores, k, axis=axis)


value_of = for_users(_value, static_argnums=(0, 1), static_argnames="axis")
quick_value_of = jax.jit(_value, static_argnums=(0, 1), static_argnames="axis")


@functools.partial(for_users, static_argnums=(0, 1))
def pullback(case, k, scores, cotangent):
    """The value, and the cotangent pulled back to the scores."""
    value, vjp = jax.vjp(lambda scores: case(scores, k), scores)
    return value, vjp(cotangent)[0]


@functools.partial(for_users, static_argnums=(0, 1))
def pushforward(case, k, scores, tangent):
    return jax.jvp(lambda scores: case(scores, k), (scores,), (tangent,))[1]


def draw(case, rng, k=K, shape=SHAPE):
    """Scores, and a cotangent of the values."""
    scores = jnp.asarray(rng.normal(size=shape), jnp.float32)
    cotangent = rng.normal(size=jax.eval_shape(lambda scores: case(scores, k), scores).shape)
    return scores, jnp.asarray(cotangent, jnp.float32)


def assert_close(case, actual, scores, k, axis=-1):
    expected = case.expected(scores, k, axis)
    assert actual.shape == expected.shape
    assert actual.dtype == jnp.float32
    error = np.abs(np.asarray(actual, np.float64) - expected)
    assert (error <= case.tolerance(expected, k, scores.shape[axis])).all()


@every_case_with(("size", "k"), [(1, 1), (2, 1), (7, 7), (1081, 5)])
def test_value_is_the_reference(case, rng, size, k):
    scores = jnp.asarray(rng.normal(size=(3, size)), jnp.float32)
    # Sums over many classes as for users; edges of few, in a fifth of the time to compile.
    value = value_of if size > 7 else quick_value_of
    assert_close(case, value(case, k, scores), scores, k)


@every_case_dearly
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.slow
def test_any_axis_and_batch_shape(case, rng, axis):
    scores = jnp.asarray(rng.normal(size=(3, 4, 5)), jnp.float32)
    assert_close(case, value_of(case, 2, scores, axis=axis), scores, 2, axis)


@every_case
def test_empty_batches(case):
    assert quick_value_of(case, 2, jnp.zeros((0, 5))).size == 0
    assert quick_value_of(case, 2, jnp.zeros((5, 0)), axis=0).size == 0


@every_case_with(["size", "k"], [(300, 40), (3000, 5), (3000, 40)])
def test_empty_batches_of_many_classes(case, size, k):
    """Methods for many classes, and for large k, which divide them into blocks."""
    gradient = jax.grad(lambda scores: _value(case, k, scores).sum())
    assert jax.eval_shape(gradient, jnp.zeros((0, size))).shape == (0, size)


@pytest.mark.slow
@every_case_with(("size", "k"), [(5, 1), (5, K), (5, 5)])
def test_both_modes_give_the_jacobian(case, rng, size, k):
    scores, _ = draw(case, rng, k, (size,))
    expected = case.expected_jacobian(scores, k)
    for mode in (jax.jacfwd, jax.jacrev):
        jacobian = jax.jit(mode(lambda scores: case(scores, k)))(scores)
        # Shares and softmax weights of at most 1, made by at most three levels of the tree.
        np.testing.assert_allclose(jacobian, expected, rtol=0, atol=16 * EPS)


@pytest.mark.slow
@every_case_dearly
def test_derivatives_by_finite_differences_in_float64(case, rng):
    with jax.enable_x64(True):
        row = rng.normal(size=5)
        function = jax.jit(lambda row: case(row, K))
        assert function(row).dtype == jnp.float64
        # The error of a central difference is of order step^2 = 1e-10 for the polynomials, whose
        # derivatives are at most of order 1, and 1e-16 / step = 1e-11 for all.
        differences = reference.finite_difference_jacobian(function, row, 1e-5)
        np.testing.assert_allclose(
            jax.jit(jax.jacrev(function))(row), differences, rtol=0, atol=1e-9
        )
        gradient = functools.partial(case.expected_jacobian, k=K)
        curvature = (
            reference.finite_difference_jacobian(gradient, row, 1e-5)
            if case.curved
            else np.zeros((*differences.shape, row.size))
        )
        for hessian in (jax.jacfwd(jax.jacrev(function)), jax.jacrev(jax.jacfwd(function))):
            np.testing.assert_allclose(jax.jit(hessian)(row), curvature, rtol=0, atol=1e-9)


def _shard_map(function):
    mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("batch")
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec))


VARIANTS = {
    "none": lambda function: function,
    "pmap": jax.pmap,
    "vmap": lambda function: jax.jit(jax.vmap(function)),
    "shard_map": _shard_map,
    "loop": lambda function: (
        lambda *rows: jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *map(jax.jit(function), *rows)
        )
    ),
}


@pytest.mark.slow
@every_case_dearly
@pytest.mark.parametrize("variant", VARIANTS)
def test_transformations_change_neither_value_nor_gradient(case, rng, variant):
    scores, cotangent = draw(case, rng)
    assert len(scores) == jax.device_count()
    expected = pullback(case, K, scores, cotangent)
    function = functools.partial(pullback.__wrapped__, case, K)
    actual = VARIANTS[variant](function)(scores, cotangent)
    for one, other in zip(actual, expected, strict=True):
        # Fusion may order sums differently: a few roundings of numbers of order 1.
        np.testing.assert_allclose(one, other, rtol=16 * EPS, atol=16 * EPS)


@every_case_dearly
def test_differentiation_leaves_the_value_alone(case, rng):
    scores, cotangent = draw(case, rng)
    value, _ = pullback(case, K, scores, cotangent)
    # The same operations; fusion may round one of them differently.
    np.testing.assert_allclose(value, value_of(case, K, scores), rtol=2 * EPS, atol=EPS)


@every_case_dearly
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.slow
def test_half_precision_is_computed_in_float32(case, rng, dtype):
    scores, cotangent = draw(case, rng)
    scores = scores.astype(dtype)
    value, gradient = pullback(case, K, scores, cotangent)
    assert_close(case, value, scores, K)
    assert gradient.dtype == dtype
    _, exact = pullback(case, K, scores.astype(jnp.float32), cotangent)
    np.testing.assert_array_equal(gradient, exact.astype(dtype))


@every_case
@pytest.mark.parametrize("scale", [1e-6, 1e4])
def test_scales_and_ties(case, rng, scale):
    scores, cotangent = draw(case, rng)
    scores = (scores.round(1) * scale).at[0].set(scale)
    value, gradient = pullback(case, K, scores, cotangent)
    expected = case.expected(scores, K)
    tolerance = case.tolerance(expected, K, scores.shape[-1])
    # The tolerance of a sum of scores is stated for scores of order 1.
    assert (np.abs(value - expected) <= tolerance * max(1, scale)).all()
    assert np.isfinite(gradient).all()


@every_case
def test_masked_classes_are_harmless(case, rng):
    scores, cotangent = draw(case, rng)
    masked = np.array([0, 4])
    scores = scores.at[:, masked].set(-jnp.inf)
    value, gradient = pullback(case, K, scores, cotangent)
    kept, kept_cotangent = scores[:, 1:4], cotangent
    if case.keeps_axis and not case.per_degree:
        np.testing.assert_array_equal(value[:, masked], 0)
        value, kept_cotangent = value[:, 1:4], cotangent[:, 1:4]
    kept_value, kept_gradient = pullback(case, K, kept, kept_cotangent)
    # The tree pairs the classes differently, and sums have other lengths.
    np.testing.assert_allclose(value, kept_value, rtol=0, atol=16 * EPS)
    np.testing.assert_array_equal(gradient[:, masked], 0)
    np.testing.assert_allclose(gradient[:, 1:4], kept_gradient, rtol=0, atol=32 * EPS)


@every_case
# The order of floats by their bits has one of them above all numbers, the other one below.
@pytest.mark.parametrize(("position", "nan"), [(0, np.nan), (4, -np.nan), (2, np.inf)])
def test_nan_spoils_its_own_example_alone(case, rng, position, nan):
    clean, cotangent = draw(case, rng)
    scores = clean.at[1, position].set(nan)
    expected = (*pullback(case, K, clean, cotangent), pushforward(case, K, clean, clean))
    actual = (*pullback(case, K, scores, cotangent), pushforward(case, K, scores, clean))
    for one, other in zip(actual, expected, strict=True):
        assert np.isnan(one[1]).all()
        np.testing.assert_array_equal(one[OTHERS], other[OTHERS])


KEY = jax.random.key(0)
SCORES = jnp.ones((2, 4))


def perturbed(operator):
    def call(**changed):
        arguments = {"key": KEY, "scores": SCORES, "k": 2, "epsilon": 1.0, "num_samples": 3}
        return operator(**(arguments | changed))

    return call


def deterministic(operator, scores="scores"):
    def call(**changed):
        return operator(**({scores: SCORES, "k": 2} | changed))

    return call


def entmax(**changed):
    return operators.entmax(**({"scores": SCORES, "alpha": 1.5} | changed))


SCORES_REFUSED = [
    (jnp.ones((2, 4), jnp.int32), TypeError, "must be a floating-point array, got dtype int32"),
    ("four", TypeError, "must be a floating-point array, got str"),
    (1.0, ValueError, r"must have at least one axis .*, got shape \(\)"),
    (jnp.ones((2, 0)), ValueError, r"not be empty along the last, got shape \(2, 0\)"),
]
INTEGER_REFUSED = [
    (2.0, TypeError, "must be an integer, got 2.0 of type float"),
    (True, TypeError, "must be an integer, got True"),
]
K_REFUSED = [
    *INTEGER_REFUSED,
    (0, ValueError, r"must be from 1 to 4 \(the number of classes\), got 0"),
    (5, ValueError, r"must be from 1 to 4 \(the number of classes\), got 5"),
]
K_ARRAY_REFUSED = [
    (jnp.array([1.0, 2.0]), TypeError, "must be an integer array, got dtype float32"),
    (jnp.array([1, 2, 3]), ValueError, r"must have shape \(2,\), got shape \(3,\)"),
    (jnp.array([1, 5]), ValueError, r"must be from 0 to 4 \(the number of classes\), got 5"),
    (np.array([-1, 4]), ValueError, r"must be from 0 to 4 \(the number of classes\), got -1"),
]
DEGREE_REFUSED = [
    *INTEGER_REFUSED,
    (-1, ValueError, r"must be from 0 to 4 \(the number of classes\), got -1"),
    (5, ValueError, r"must be from 0 to 4 \(the number of classes\), got 5"),
]
AXIS_REFUSED = [
    (2, ValueError, "must be from -2 to 1, got 2"),
    (-3, ValueError, "must be from -2 to 1, got -3"),
    (0.0, TypeError, "must be an integer, got 0.0"),
]
NOT_A_KEY = "must be a key made by jax.random.key, got"
KEY_REFUSED = [
    (0, TypeError, f"{NOT_A_KEY} int"),
    (jnp.zeros(2), TypeError, rf"{NOT_A_KEY} an array of dtype float32 and shape \(2,\)"),
    (jnp.zeros(3, jnp.uint32), TypeError, rf"{NOT_A_KEY} an array of dtype uint32"),
    (jax.random.split(KEY, 3), ValueError, r"the batch's shape \(2,\), got shape \(3,\)"),
    (None, ValueError, "exactly one of key and noise must be given, got neither"),
]
ALPHA_REFUSED = [
    (0.9, ValueError, "must be at least 1 and at most 2, got 0.9"),
    (2.1, ValueError, "must be at least 1 and at most 2, got 2.1"),
    (jnp.ones(2), ValueError, r"must be a scalar, got shape \(2,\)"),
    ("one", TypeError, "must be a real number or array, got str"),
]
P_REFUSED = [
    (1.0, ValueError, "must be greater than 1 and at most 2, got 1"),
    (2.1, ValueError, "must be greater than 1 and at most 2, got 2.1"),
    (jnp.ones(2), ValueError, r"must be a scalar, got shape \(2,\)"),
]
REGULARIZATION_REFUSED = [
    (0.0, ValueError, "must be greater than 0, got 0"),
    (jnp.ones(2), ValueError, r"must be a scalar, got shape \(2,\)"),
    ("one", TypeError, "must be a real number or array, got str"),
]
EPSILON_REFUSED = [
    (-1.0, ValueError, "must be at least 0, got -1"),
    (np.nan, ValueError, "must be at least 0, got nan"),
    (jnp.ones(2), ValueError, r"must be a scalar, got shape \(2,\)"),
    ("one", TypeError, "must be a real number or array, got str"),
    (1j, TypeError, "must be real, got dtype complex64"),
]
POSITIVE_REFUSED = [
    *EPSILON_REFUSED[2:],
    (0.0, ValueError, "must be greater than 0, got 0"),
    (-1.0, ValueError, "must be greater than 0, got -1"),
]
NUM_SAMPLES_REFUSED = [*INTEGER_REFUSED, (0, ValueError, "must be at least 1, got 0")]
NOISE_REFUSED = [
    (jnp.ones((3, 2, 4)), ValueError, "exactly one of key and noise must be given, got both"),
]
GIVEN_NOISE_REFUSED = [
    (jnp.ones((2, 2, 4)), ValueError, r"must have shape \(3, 2, 4\) .*, got shape \(2, 2, 4\)"),
    (jnp.ones((3, 2, 4), jnp.int32), TypeError, "must be a floating-point array, got dtype int32"),
]

REFUSALS: dict[str, tuple[Callable[..., Any], dict[str, list]]] = {
    "top_k_value": (
        deterministic(operators.top_k_value),
        {"scores": SCORES_REFUSED, "k": K_REFUSED, "axis": AXIS_REFUSED},
    ),
    "top_k_sum": (
        deterministic(operators.top_k_sum),
        {"scores": SCORES_REFUSED, "k": K_REFUSED, "axis": AXIS_REFUSED},
    ),
    "log_symmetric_polynomials": (
        deterministic(operators.log_symmetric_polynomials, "log_values"),
        {"log_values": SCORES_REFUSED, "k": DEGREE_REFUSED, "axis": AXIS_REFUSED},
    ),
    "sparse_top": (
        deterministic(operators.sparse_top),
        {"scores": SCORES_REFUSED, "k": K_REFUSED + K_ARRAY_REFUSED, "axis": AXIS_REFUSED},
    ),
    "lapsum_top_k": (
        deterministic(functools.partial(operators.lapsum_top_k, alpha=1.0)),
        {"scores": SCORES_REFUSED, "k": K_REFUSED, "alpha": POSITIVE_REFUSED, "axis": AXIS_REFUSED},
    ),
    "sinkhorn_top_k": (
        deterministic(functools.partial(operators.sinkhorn_top_k, epsilon=1.0)),
        {
            "scores": SCORES_REFUSED,
            "k": K_REFUSED,
            "epsilon": POSITIVE_REFUSED,
            "axis": AXIS_REFUSED,
        },
    ),
    "sigmoid_top_k": (
        deterministic(functools.partial(operators.sigmoid_top_k, tau=1.0)),
        {
            "scores": SCORES_REFUSED,
            "k": [
                *INTEGER_REFUSED,
                (0, ValueError, r"must be from 1 to 3 .*, got 0"),
                (4, ValueError, r"must be from 1 to 3 .*, got 4"),
            ],
            "tau": POSITIVE_REFUSED,
            "axis": AXIS_REFUSED,
        },
    ),
    "entmax": (
        entmax,
        {"scores": SCORES_REFUSED, "alpha": ALPHA_REFUSED, "axis": AXIS_REFUSED},
    ),
    "p_norm_top_k": (
        deterministic(functools.partial(operators.p_norm_top_k, p=1.5, regularization=1.0)),
        {
            "scores": SCORES_REFUSED,
            "k": K_REFUSED,
            "p": P_REFUSED,
            "regularization": REGULARIZATION_REFUSED,
            "axis": AXIS_REFUSED,
        },
    ),
    "relaxed_ranks": (
        deterministic(functools.partial(operators.relaxed_ranks, method="bitonic", tau=1.0)),
        {
            "scores": SCORES_REFUSED,
            "k": K_REFUSED,
            "method": [("quicksort", ValueError, "must be 'bitonic', .*, got 'quicksort'")],
            "tau": [(0.0, ValueError, "must be greater than 0, got 0")],
            "swap": [(None, ValueError, "must be 'logistic', 'cauchy' or 'optimal', got None")],
            "art_lambda": [(1.0, ValueError, "must be at least 0 and less than 1, got 1")],
            "axis": AXIS_REFUSED,
        },
    ),
    "expected_top_k_value": (
        deterministic(functools.partial(operators.expected_top_k_value, epsilon=1.0)),
        {
            "scores": SCORES_REFUSED,
            "k": K_REFUSED,
            "epsilon": EPSILON_REFUSED,
            "num_nodes": [*INTEGER_REFUSED, (0, ValueError, "must be at least")],
            "axis": AXIS_REFUSED,
        },
    ),
    **{
        name: (
            perturbed(getattr(operators, name)),
            {
                "key": KEY_REFUSED,
                "scores": SCORES_REFUSED,
                "k": K_REFUSED,
                "epsilon": EPSILON_REFUSED,
                "num_samples": NUM_SAMPLES_REFUSED,
                "noise": NOISE_REFUSED,
                "axis": AXIS_REFUSED,
            },
        )
        for name in ("perturbed_top_k_sum", "perturbed_top_k_value")
    },
}


def test_every_operator_is_in_the_table_of_refusals():
    assert sorted(REFUSALS) == sorted(operators.__all__)


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.slow
def test_refusals_name_the_argument(name):
    call, refused = REFUSALS[name]
    jax.jit(call)()
    for argument, values in refused.items():
        for value, error, message in values:
            with pytest.raises(error, match=message) as raised:
                call(**{argument: value})
            assert argument in str(raised.value)


@pytest.mark.parametrize("name", ["perturbed_top_k_sum", "perturbed_top_k_value"])
def test_refusals_of_given_noise(name):
    for noise, error, message in GIVEN_NOISE_REFUSED:
        with pytest.raises(error, match=f"noise {message}"):
            perturbed(getattr(operators, name))(key=None, noise=noise)


@pytest.mark.parametrize(
    ("name", "argument"),
    [(name, "k") for name in REFUSALS if name not in ("sparse_top", "entmax")]
    + [("perturbed_top_k_sum", "num_samples"), ("perturbed_top_k_value", "num_samples")]
    + [(name, "axis") for name in REFUSALS],
)
def test_traced_static_arguments_are_refused(name, argument):
    with pytest.raises(TypeError, match=f"{argument} must be a static integer, got a traced"):
        jax.jit(lambda value: REFUSALS[name][0](**{argument: value}))(1)
