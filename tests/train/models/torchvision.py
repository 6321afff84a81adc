"""Our ResNets as files of torchvision's, the inverse of `train.models.pretrained`."""

import numpy as np

from train.models import torch_names


def arrays_of(params, batch_stats):
    """The variables of a ResNet under torchvision's names and in PyTorch's layout.

    A head that is not linear has no name there and is left out, as is the number of batches that
    batch norm has seen: PyTorch then takes 0.
    """
    return {
        name: np.ascontiguousarray(torch_names.to_torch(np.asarray(array)))
        for key, array in torch_names.flatten(params, batch_stats).items()
        if (name := torch_names.torchvision_name(key)) is not None
    }
