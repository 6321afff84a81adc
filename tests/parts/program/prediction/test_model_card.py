"""The model card beside an export is one that model hubs read, and shows names as they are."""

from types import SimpleNamespace

import huggingface_hub

from tests.parts.program.prediction import fitted_rules
from train.data.classes import Classes
from train.prediction import model_card

NAMES = ("an oak", "a|pipe", "<script>", "*star*")
COUNTS = (3, 50, 200, 0)
RESULTS = {
    "test": {
        "loss": 0.5,
        "top_1_accuracy": 0.75,
        "macro_top_1_accuracy": 0.5,
        "few_top_1_accuracy": None,
    }
}


def classifier(results=None, attribution="", counts=COUNTS):
    return SimpleNamespace(
        inputs="images",
        spec=SimpleNamespace(name="trees: 4", attribution=attribution),
        network_name="resnet18",
        origin=("weights", "/home/somebody/best.tar"),
        classes=Classes(NAMES, tuple(counts)),
        results=results or {},
    )


def read(classifier, rule, name="trees.stablehlo"):
    return huggingface_hub.ModelCard(model_card.write(classifier, rule, name).decode())


def test_its_head_has_what_was_measured():
    card = read(classifier(RESULTS), fitted_rules.of("top_k=2", classes=4))
    assert card.data.pipeline_tag == "image-classification"
    assert card.data.library_name == "topk_jax"
    found = {one.metric_name: one.metric_value for one in card.data.eval_results}
    assert found == {"top-1 accuracy": 0.75, "macro top-1 accuracy": 0.5}
    assert {one.dataset_name for one in card.data.eval_results} == {"trees: 4"}
    assert "| top-1 | 75.00% | 50.00% | - | - | - |" in card.text


def test_its_text_has_the_data_and_no_folder_of_the_user():
    card = read(
        classifier(attribution="Trees Inc, CC BY 4.0"), fitted_rules.of("top_k=2", classes=4)
    )
    assert "licence of the data: Trees Inc, CC BY 4.0" in card.text
    assert "from 0 to 200, in the median 26.5" in card.text
    assert "best.tar" in card.text
    assert "somebody" not in card.text
    assert "| a\\|pipe | 50 |" in card.text
    assert "| \\<script\\> | 200 |" in card.text
    assert "has not tested" in card.text
    assert card.data.eval_results is None
