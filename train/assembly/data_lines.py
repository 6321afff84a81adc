"""The lines that training prints about its data before the first step."""

from train.assembly.parts import Assembly
from train.foundation.console import show_line
from train.training import normalization, optimizer


def show_data(assembly: Assembly) -> None:
    """Prints what was found in the data, before the first step, which takes long."""
    data = assembly.data
    dataset = data.dataset
    splits = {"training": dataset.train, "validation": dataset.validation, "the test": dataset.test}
    sizes = ", ".join(f"{len(split):,} for {name}" for name, split in splits.items())
    sharing = assembly.devices.class_axis.size
    shared = f", shared by {sharing} devices" if sharing > 1 else ""
    show_line(
        f"{data.num_classes:,} classes{shared}; {data.spec.example}s: {sizes}; the first step "
        "is compiled, which can take a minute"
    )
    if dataset.train.truths is not None:
        show_line(dataset.train.truths.in_words())
    groups = ", ".join(
        f"{split.num_groups:,} for {name}"
        for name, split in splits.items()
        if split.groups is not None
    )
    if groups:
        show_line(f"groups: {groups}")
    settings, num_epochs = data.config.optimizer, data.config.num_epochs
    if (warmup := optimizer.warmup_epochs(settings, num_epochs)) < settings.warmup_epochs:
        show_line(
            f"the warm-up takes {warmup:g} epochs, half of the run, in place of "
            f"{settings.warmup_epochs:g} (config.optimizer.warmup_epochs)"
        )
    if data.spec.has_images and data.facts.mean is not None:
        show_line(normalization.describe(data.config.model, data.spec))
