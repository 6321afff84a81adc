"""Names of places: which of 712 regions has a place of this name? The devices share the classes.

    python -m train.main --config=configs/place_regions.py
    python -m train.main --config=configs/place_regions.py:noised_balanced

On a machine without accelerators, with eight threads as devices:

    JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 \
        python -m train.main --config=configs/place_regions.py

The classes are shared by the largest number of devices that divides the devices of a process and
the classes. configs/place_names.py has the same data, with their licence. Training takes five
minutes on two cores. Expect a test top-5 accuracy of 0.47 and an average-5 accuracy of 0.50 with
the default loss. To choose another loss, write its name after a colon. A loss whose
classes cannot be split is refused, and the message lists the losses whose classes can.
"""

from ml_collections import ConfigDict

from configs import place_names


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    config = place_names.get_config(loss)
    config.dataset.target = "region"
    # 712 regions have at least this number of names.
    config.dataset.fewest_names = 50
    config.parallel = "mesh"
    return config
