"""The benchmark of the networks: what a run measures again, and the tables."""

import json
import sys

import pytest

from benchmarks import networks, networks_report


def measured(seconds):
    def one(forward, gradients):
        return {
            "compile_seconds": None,
            "memory": 2_000_000,
            "forward": forward,
            "gradients": gradients,
        }

    here = {**one(seconds, 4 * seconds), "compile_seconds": 3.2}
    return {
        "parameters": 1234,
        "contestants": {"here": here, "PyTorch": one(0.5, 2.0), "channels_last": one(0.2, 0.4)},
        "failures": {"torch.compile": "too slow"},
    }


def run(monkeypatch, output, *flags):
    monkeypatch.setattr(sys, "argv", ["networks", "--batch_size=4", f"--output={output}", *flags])
    networks.main()
    return json.loads(output.read_text())


def test_a_cut_run_goes_on_and_failures_are_listed(tmp_path, monkeypatch):
    output = tmp_path / "networks-cpu.json"
    models = {name: networks.MODELS[name] for name in ("resnet18", "resnet34")}
    monkeypatch.setattr(networks, "MODELS", models)
    monkeypatch.setattr(networks.importlib.metadata, "version", lambda name: "1.0")
    asked = []

    def in_process(name, settings):
        asked.append(name)
        if name == "resnet18" and len(asked) == 1:
            return {"failure": "killed"}
        return measured(0.25)

    monkeypatch.setattr(networks, "_in_process", in_process)
    first = run(monkeypatch, output, "--networks=resnet18")
    assert first["networks"] == {"resnet18": {"failure": "killed"}}
    assert "- resnet18: killed" in networks_report.tables(first)
    results = run(monkeypatch, output)
    assert asked == ["resnet18", "resnet18", "resnet34"]
    run(monkeypatch, output)
    assert len(asked) == 3
    run(monkeypatch, output, "--networks=resnet34")
    assert asked[3:] == ["resnet34"]

    lines = networks_report.tables(results).splitlines()
    assert "| `resnet18` | 16.0 | 8.0 | 20.0 | 2.00 | 0.80 |" in lines
    assert "| `resnet18` | 4.0 | 2.0 | 10.0 | 2.00 | 0.40 |" in lines
    assert "| `resnet18` | 1,234 | 2 | 2 | 2 | 3 |" in lines
    assert "- resnet18, torch.compile: too slow" in lines


def test_results_of_other_settings_are_no_part_of_a_run(tmp_path, monkeypatch, capsys):
    output = tmp_path / "networks-cpu.json"
    output.write_text(json.dumps({"settings": {"image_size": 64}, "networks": {}}))
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, output)
    assert ended.value.code == 2
    assert "was measured with {'image_size': 64}" in capsys.readouterr().err


def test_an_unknown_network_is_told(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, tmp_path / "results.json", "--networks=resnet18,lenet")
    assert ended.value.code == 2
    assert "must be some of alexnet, " in capsys.readouterr().err
