"""Forward passes in NumPy float64, written out layer by layer; imports nothing of ours.

Parameters and statistics come as nested dicts of float64 arrays under the networks' own names.
"""

import numpy as np


def relu(inputs):
    return np.maximum(inputs, 0)


def conv(inputs, kernel, stride=1):
    """A sum over the taps of the kernel, with half its size of zeros on every side."""
    size = kernel.shape[0]
    margin = size // 2
    padded = np.pad(inputs, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    height, width = (padded.shape[axis] - size + 1 for axis in (1, 2))
    return sum(
        padded[:, row : row + height : stride, column : column + width : stride]
        @ kernel[row, column]
        for row in range(size)
        for column in range(size)
    )


def max_pool(inputs):
    """Windows of 3 by 3, two pixels apart, with one pixel of nothing on every side."""
    padded = np.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    height, width = inputs.shape[1:3]
    windows = [
        padded[:, row : row + height : 2, column : column + width : 2]
        for row in range(3)
        for column in range(3)
    ]
    return np.max(windows, axis=0)


def halve(inputs):
    """Means of windows of 2 by 2."""
    return sum(inputs[:, row::2, column::2] for row in (0, 1) for column in (0, 1)) / 4


class Network:
    """Layers by name, in training or in evaluation."""

    def __init__(self, variables, *, train):
        self.params = variables["params"]
        self.batch_stats = variables["batch_stats"]
        self.train = train

    def within(self, name):
        part = {"params": self.params[name], "batch_stats": self.batch_stats[name]}
        return Network(part, train=self.train)

    def conv(self, name, inputs, stride=1):
        return conv(inputs, self.params[name]["kernel"], stride)

    def norm(self, name, inputs):
        if self.train:
            axes = tuple(range(inputs.ndim - 1))
            mean, variance = inputs.mean(axis=axes), inputs.var(axis=axes)
        else:
            mean, variance = self.batch_stats[name]["mean"], self.batch_stats[name]["var"]
        normalized = (inputs - mean) / np.sqrt(variance + 1e-5)
        return normalized * self.params[name]["scale"] + self.params[name]["bias"]


def strided_cnn(variables, images, *, train):
    net = Network(variables, train=train)
    hidden = images
    for layer, stride in (("layer1", 2), ("layer2", 2), ("layer3", 2), ("layer4", 1)):
        hidden = net.conv(f"{layer}_conv", hidden, stride)
        hidden = relu(net.norm(f"{layer}_bn", hidden))
    return hidden.mean(axis=(1, 2))


def densenet(variables, images, *, layers_per_block, train):
    net = Network(variables, train=train)
    hidden = net.conv("conv1", images)
    for block in (1, 2, 3):
        for index in range(layers_per_block):
            prefix = f"block{block}_{index}"
            inner = net.conv(f"{prefix}_conv1", relu(net.norm(f"{prefix}_bn1", hidden)))
            new = net.conv(f"{prefix}_conv2", relu(net.norm(f"{prefix}_bn2", inner)))
            hidden = np.concatenate([hidden, new], axis=-1)
        if block < 3:
            hidden = relu(net.norm(f"transition{block}_bn", hidden))
            hidden = halve(net.conv(f"transition{block}_conv", hidden))
    return relu(net.norm("bn", hidden)).mean(axis=(1, 2))


def resnet(variables, images, *, stage_sizes, bottleneck, train):
    net = Network(variables, train=train)
    hidden = max_pool(relu(net.norm("bn1", net.conv("conv1", images, 2))))
    for stage, num_blocks in enumerate(stage_sizes):
        for index in range(num_blocks):
            block = net.within(f"layer{stage + 1}_{index}")
            stride = 2 if stage > 0 and index == 0 else 1
            strides = {"conv1": 1, "conv2": stride, "conv3": 1}
            if not bottleneck:
                strides = {"conv1": stride, "conv2": 1}
            inner = hidden
            for number, (name, step) in enumerate(strides.items(), start=1):
                inner = inner if number == 1 else relu(inner)
                inner = block.norm(f"bn{number}", block.conv(name, inner, step))
            if "downsample_conv" in block.params:
                shortcut = block.conv("downsample_conv", hidden, stride)
                hidden = block.norm("downsample_bn", shortcut)
            hidden = relu(hidden + inner)
    return hidden.mean(axis=(1, 2))
