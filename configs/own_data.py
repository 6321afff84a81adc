"""The fields that recipes share after whose colon any loss may stand."""

from typing import Any

from ml_collections import ConfigDict, config_dict

from configs.recipe import complete

# Each loss uses the fields that it needs.
_LOSS = {
    "k": 3,
    "epsilon": 1.0,
    "num_samples": 10,
    "tau": 1.0,
    "gamma": 1.0,
    "max_margin": 0.2,
    "scale": 20.0,
    "alpha": 0.3,
    "beta": 0.01,
    "weight": 0.01,
    "label_learning_rate": 1.0,
}
# Of losses that need other values of them, or fields of their own.
_OF_LOSS: dict[str, dict[str, Any]] = {
    "vector_scaling": {"gamma": 0.2, "tau": 1.2},
    "generalized_cross_entropy": {"q": 0.7},
    "symmetric_cross_entropy": {"alpha": 0.1, "beta": 1.0},
    "relaxed_top_k_cross_entropy": {
        # The weight of K = 1; the rest is that of k.
        "top_1_weight": 0.5,
        "method": "bitonic",
        "swap": "cauchy",
        "art_lambda": 0.0,
        "num_candidates": 16,
    },
    "lapsum_top_k": {"alpha": 1.0},
    "entmax": {"alpha": 1.5},
}
OPTIMIZER = {
    "learning_rate": 0.02,
    "weight_decay": 1e-4,
    "schedule": "cosine",
    "warmup_epochs": 1.0,
}


def loss_fields(loss: str, **fields: Any) -> dict[str, Any]:
    """`config.loss` of a recipe after whose colon any loss may stand.

    Args:
        loss: the name of the loss.
        **fields: values of the recipe's own.
    """
    return {"name": loss, **_LOSS, **fields, **_OF_LOSS.get(loss, {})}


def own_images(loss: str, **dataset: Any) -> ConfigDict:
    """The recipe for images of any kind.

    Args:
        loss: the name of the loss.
        **dataset: the fields of `config.dataset` that the kind has of its own, or with another
            default; `name` is one of them.
    """
    return complete(
        {
            "seed": 0,
            "num_epochs": 30,
            "dataset": {
                "batch_size": 32,
                "data_dir": config_dict.placeholder(str),
                # The parts of each class that are held out where there are no splits.
                "validation_fraction": 0.15,
                "test_fraction": 0.15,
                # What becomes of classes without training images: "refuse", "leave_out", or
                # "count_as_unknown", which makes their test images misses.
                "unseen_classes": "refuse",
                # The largest number of training images of a class; None for all.
                "train_per_class": config_dict.placeholder(int),
                # Makes a long tail of the training images: the largest class has so many times
                # those of the smallest one. 1 for the classes as they are.
                "imbalance_factor": 1.0,
                # The probability that a training label is drawn anew, from its group: five classes
                # that are neighbours ("blocks") or not ("across"), or all classes ("uniform").
                "label_noise": 0.0,
                "label_noise_kind": "blocks",
                # The height and width that the network gets. None for that of the images if they
                # all have one size of at most 64 pixels, and for 224 otherwise.
                "image_size": config_dict.placeholder(int),
                # none, flip, crop_flip, random_resized_crop or randaugment.
                "augmentation": "random_resized_crop",
                # Which packages decode and resize: Pillow ("exact"), or others in 0.6 of the time,
                # whose pixels are at most a step of 255 apart ("fast").
                "decoding": "exact",
                # Whether photographs are rotated as the camera noted.
                "respect_exif_orientation": True,
                # Transparent pixels have their colour ("drop"), or lie on white ("white").
                "transparency": "drop",
                # Whether a file that lacks its end is read as far as it goes; otherwise it is one
                # that cannot be read.
                "read_truncated": False,
                # "imagenet", which pretrained networks expect, or "half": values from -1 to 1.
                "normalization": "imagenet",
                # The number of processes that decode; 0 for threads.
                "num_workers": 0,
                # All images are looked at before the first step: their first and last bytes
                # ("headers"), or they are decoded, which takes as long as an epoch reads ("all").
                "check_images": "headers",
                # Whether images that cannot be read are left out; otherwise they are refused, all
                # of them in one list.
                "skip_unreadable": False,
                **dataset,
            },
            "model": {"name": "resnet18"},
            "loss": loss_fields(loss),
            "optimizer": OPTIMIZER,
            "select_by": "top_3_accuracy",
            "eval": {"ks": (1, 3, 5)},
        }
    )
