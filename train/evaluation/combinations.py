"""How the scores of the examples of an observation become one: the ways by name.

An observation is a group of examples, such as the photographs of one plant. Nothing is computed
here: the help of commands names the ways without waiting for JAX.
"""

DEFAULT = "log_probabilities"
TRAINED = "trained"
COMBINATIONS = {
    DEFAULT: "the mean of their log-probabilities",
    "probabilities": "the mean of their probabilities",
    "maximum": "the largest of each class",
    TRAINED: "the mean of their log-probabilities times a weight by their number, which is fitted "
    "on the validation observations",
}
IN_WORDS = "; ".join(f"{name}: {what}" for name, what in COMBINATIONS.items())


def name_in_files(name: str, combined_by: str | None) -> str:
    """The name of a value in files of thresholds; values of observations have other names."""
    return name if combined_by is None else f"observations_{combined_by}_{name}"
