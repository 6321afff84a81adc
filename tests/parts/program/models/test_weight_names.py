"""Names of arrays in files of others, which can have any length."""

from train.models.weights import names


def test_a_name_of_many_parts_is_compared_as_far_as_templates_go(monkeypatch):
    compared = []

    def match(text, _templates):
        compared.append(text)

    monkeypatch.setattr(names, "_match", match)
    name = "a." * 20_000 + "b"
    assert names._renamed(name, {"blocks.{}.attn": "layers.{}.attention", "norm": "norm"}) == name
    assert compared == ["a.a.a", "a.a", "a"]
