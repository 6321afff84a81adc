"""A search for hyperparameters with Optuna, which stops the trials that fall behind.

    python -m examples.optuna_search

Each trial is a run of the program. After each epoch the run reports its validation accuracy to the
trial. If the accuracy is below the median of the earlier trials, Optuna raises `TrialPruned`, which
ends the run.

To stop a search and continue it later, keep its runs in a permanent folder and give the study a
`storage`.
"""

import json
import tempfile
from pathlib import Path

import optuna

from configs import digits
from train.devices import processes
from train.foundation.errors import UserError
from train.run import experiment

NUM_TRIALS = 6
NUM_EPOCHS = 5
METRIC = "top_3_accuracy"


def objective(trial: optuna.Trial, folder: Path) -> float:
    """The validation accuracy of one trial, at its best epoch."""
    config = json.loads(digits.get_config("noised_top_k_hinge").to_json())
    config["num_epochs"] = NUM_EPOCHS
    config["select_by"] = METRIC
    config["optimizer"]["learning_rate"] = trial.suggest_float("learning_rate", 1e-3, 0.1, log=True)
    config["loss"]["epsilon"] = trial.suggest_float("epsilon", 0.3, 3.0, log=True)

    def prune(epoch, metrics):
        trial.report(metrics[METRIC], epoch)
        if trial.should_prune():
            raise optuna.TrialPruned

    results = experiment.run(config, folder / f"trial-{trial.number}", after_epoch=prune)
    trial.set_user_attr("test", results["test"][METRIC])
    return results["validation"][METRIC]


def main() -> float:
    """Searches, and returns the test accuracy of the best trial."""
    # All trials share their compiled programs: only numbers differ.
    processes.use_compilation_cache()
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=1),
    )
    with tempfile.TemporaryDirectory() as folder:
        # A trial whose training diverges fails, and the search continues.
        study.optimize(
            lambda trial: objective(trial, Path(folder)), n_trials=NUM_TRIALS, catch=UserError
        )
    pruned = sum(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
    best = study.best_trial
    values = ", ".join(f"{name} {value:.3g}" for name, value in best.params.items())
    print(f"best of {len(study.trials)} trials, {pruned} of them pruned: {values}")
    print(f"its test top-3 accuracy: {best.user_attrs['test']:.3f}")
    return best.user_attrs["test"]


if __name__ == "__main__":
    main()
