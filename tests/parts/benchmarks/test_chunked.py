"""The benchmark of the losses over blocks of classes, with few classes."""
