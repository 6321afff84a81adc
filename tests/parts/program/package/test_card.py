"""The model card beside an export is one that model hubs read, and shows names as they are."""

from types import SimpleNamespace

import huggingface_hub

from tests.parts.program.prediction import fitted_rules
from train.data.classes import Classes
from train.package import card

NAMES = ("an oak", "a|pipe", "<script>", "*star*")
COUNTS = (3, 50, 200, 0)
METRICS = {"top_1_accuracy": 0.75, "macro_top_1_accuracy": 0.5, "few_top_1_accuracy": None}
RESULTS = {"test": {"loss": 0.5, **METRICS}}


def classifier(results=None, attribution=""):
    return SimpleNamespace(
        inputs="images",
        spec=SimpleNamespace(name="trees: 4", attribution=attribution),
        network_name="resnet18",
        origin=("weights", "/home/somebody/best.tar"),
        classes=Classes(NAMES, COUNTS),
        results=results or {},
    )


def read(classifier, rule, name="trees.stablehlo"):
    return huggingface_hub.ModelCard(card.write(classifier, rule, name).decode())


def test_its_head_has_what_was_measured():
    card = read(classifier(RESULTS), fitted_rules.of("top_k=2", classes=4))
    assert card.data.pipeline_tag == "image-classification"
    found = {one.metric_name: one.metric_value for one in card.data.eval_results}
    assert found == {"top-1 accuracy": 0.75, "macro top-1 accuracy": 0.5}
    assert {one.dataset_name for one in card.data.eval_results} == {"trees: 4"}
    assert "- top-1 accuracy: 75.00%\n- macro top-1 accuracy: 50.00%" in card.text


def test_its_text_has_the_data_and_no_folder_of_the_user():
    rule = fitted_rules.of("top_k=2", classes=4)
    card = read(classifier(attribution="Trees Inc, CC BY 4.0"), rule, "a|<script>")
    for text in ("Trees Inc, CC BY 4.0", "0 to 200", "best.tar", "# a\\|\\<script\\>"):
        assert text in card.text
    assert "somebody" not in card.text
    assert card.data.eval_results is None
