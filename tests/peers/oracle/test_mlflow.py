"""`config.trackers` with MLflow itself, in a store of local files."""

import mlflow

from train.run.trackers import Trackers

CONFIG = {"seed": 0, "model": {"name": "x" * 300}}


def test_a_run_that_goes_on_is_one_run(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    # It has no other store without a server or a database.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    events = tmp_path / "run" / "tensorboard"
    events.mkdir(parents=True)
    (events / "events").touch()
    client = mlflow.MlflowClient()
    for steps, finished in (([5], False), ([5, 10, 15], True)):
        trackers = Trackers(["mlflow"], tmp_path / "run", CONFIG)
        for step in steps:
            trackers.write(step, "train", {"loss": 0.5})
        trackers.close(finished=finished)
        experiment = client.get_experiment_by_name("topk_jax")
        (run,) = client.search_runs([experiment.experiment_id])
        assert run.info.status == ("FINISHED" if finished else "KILLED")
    assert run.info.run_name == "run"
    assert run.data.params == {"seed": "0", "model.name": "x" * 250}
    assert run.data.metrics == {"train/loss": 0.5}
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [one.step for one in history] == [5, 10, 15]
