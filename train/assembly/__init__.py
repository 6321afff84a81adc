"""From a configuration to the parts of a run, wired once for training and for finished runs."""

from pathlib import Path

from train.assembly.parts import Assembly
from train.configuration import Config, rules
from train.devices import parallel
from train.foundation.errors import UserError
from train.foundation.spelling import spell
from train.models import check_image_shape
from train.training import rank_losses
from train.workdir.facts import Facts


def assemble(
    config: Config, facts: Facts | None = None, *, workdir: Path | None = None
) -> Assembly:
    """The parts of a run.

    Args:
        config: the configuration.
        facts: the facts of a finished run, which is used without its data set. Training leaves
            them out: the data set is opened, and has them.
        workdir: the folder of the run. What it stored about its data set is used if the run
            resumes. Unreadable images that are left out are listed there. None for a run without a
            folder.

    Raises:
        UserError: the data set cannot be opened, or does not fit the configuration.
    """
    assembly = Assembly(config, facts, workdir)
    check_images(assembly)
    if facts is None:
        assembly.check_memory()
        rank_losses.check(config.loss, assembly.loss, assembly.data.tree)
    rules.check_classes(config, assembly.data.spec, len(assembly.data.classes.names))
    return assembly


def check_images(assembly: Assembly) -> None:
    """Refuses images of a shape that the network does not take."""
    if assembly.data.has_images:
        name, shape = assembly.config.model.name, assembly.data.image_shape
        if wrong := check_image_shape(name, shape):
            named = spell(f"config.model.name={name}")
            raise UserError(f"{named} takes {wrong}; got images of shape {shape}")


def check_batch_size(config: Config, class_devices: int, *, num_devices: int | None = None) -> None:
    """Refuses a batch that groups of this number of devices cannot share equally.

    Args:
        config: the configuration.
        class_devices: the devices that have the same share of the batch.
        num_devices: all of them; None for those that JAX finds.
    """
    parallel.check_batch_size(
        config.dataset.batch_size,
        config.optimizer.accumulation_steps,
        in_pairs=config.dataset.mixup > 0,
        class_devices=class_devices,
        num_devices=num_devices,
    )
