"""Networks in NumPy, layer by layer, from variables under the names that ours have.

In float64, and with nothing of ours.
"""

import math

import numpy as np

# Layers.


def relu(x):
    return np.maximum(x, 0)


def relu6(x):
    return np.clip(x, 0, 6)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def hard_sigmoid(x):
    return relu6(x + 3) / 6


def hard_swish(x):
    return x * hard_sigmoid(x)


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2


def quick_gelu(x):
    return x * sigmoid(1.702 * x)


def softmax(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def windows(x, size, stride, pads, fill=0.0):
    """Of every window the number at its first place, then that at its second, and so on."""
    x = np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=fill)
    height, width = (x.shape[axis] - size[axis - 1] + 1 for axis in (1, 2))
    return [
        x[:, row : row + height : stride, column : column + width : stride]
        for row in range(size[0])
        for column in range(size[1])
    ]


def max_pool(x, size=3, padding=0, beyond=0):
    """`beyond` is how many rows and columns the last windows reach beyond the image."""
    pads = [(padding, padding + beyond)] * 2
    return np.max(windows(x, (size, size), 2, pads, -np.inf), axis=0)


def mean_pool(x):
    """Of 3 by 3 numbers, of which those around the image are 0."""
    return np.mean(windows(x, (3, 3), 1, [(1, 1)] * 2), axis=0)


def adaptive_mean(x, size):
    """PyTorch's, with the channels first, as a vector."""
    for axis in (1, 2):
        length = x.shape[axis]
        parts = [
            range(index * length // size, math.ceil((index + 1) * length / size))
            for index in range(size)
        ]
        x = np.stack([x.take(part, axis=axis).mean(axis=axis) for part in parts], axis=axis)
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


class Net:
    """The layers of a network, or of a part of it, by their names.

    In training they change the statistics, of which a step keeps nine tenths.
    """

    def __init__(self, params, stats, epsilon=1e-5, train=False):
        self.params, self.stats, self.epsilon, self.train = params, stats, epsilon, train

    def within(self, name):
        return Net(self.params[name], self.stats.get(name, {}), self.epsilon, self.train)

    def names(self, start):
        return [name for name in self.params if name.startswith(start)]

    def dense(self, name, x):
        return x @ self.params[name]["kernel"] + self.params[name].get("bias", 0)

    def conv(self, name, x, stride=1, padding=None):
        kernel = self.params[name]["kernel"]
        *size, inputs, channels = kernel.shape
        pads = [(one // 2 if padding is None else padding,) * 2 for one in size]
        numbers = kernel.reshape(-1, inputs, channels)
        places = zip(windows(x, size, stride, pads), numbers, strict=True)
        # A kernel with one input for each of several channels is of each channel alone.
        by_channel = inputs == 1 < x.shape[-1]
        total = sum(part * one[0] if by_channel else part @ one for part, one in places)
        return total + self.params[name].get("bias", 0)

    def norm(self, name, x):
        """Batch norm by the batch in training, else by the statistics."""
        used = self.stats[name]
        if self.train:
            axes = tuple(range(x.ndim - 1))
            used = {"mean": x.mean(axis=axes), "var": x.var(axis=axes)}
            for one, before in self.stats[name].items():
                self.stats[name][one] = 0.9 * before + 0.1 * used[one]
        x = (x - used["mean"]) / np.sqrt(used["var"] + self.epsilon)
        return x * self.params[name]["scale"] + self.params[name]["bias"]

    def layer_norm(self, name, x):
        mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
        x = (x - mean) / np.sqrt(variance + self.epsilon)
        return x * self.params[name]["scale"] + self.params[name]["bias"]

    def conv_norm(self, name, x, stride=1, activation=relu, padding=None):
        return activation(self.norm(f"{name}_bn", self.conv(f"{name}_conv", x, stride, padding)))


def same(x):
    return x


# Families: their features, from images.


def small_cnn(net, x):
    for layer in range(3):
        x = max_pool(x, 2) if layer == 2 else x
        x = relu(net.norm(f"BatchNorm_{layer}", net.conv(f"Conv_{layer}", x)))
    return x.mean(axis=(1, 2))


def strided_cnn(net, x):
    for layer, stride in (("layer1", 2), ("layer2", 2), ("layer3", 1)):
        x = net.conv_norm(layer, x, stride)
    return x.mean(axis=(1, 2))


def mlp(net, x):
    x = x.reshape(len(x), -1)
    for layer in range(2):
        x = relu(net.norm(f"BatchNorm_{layer}", net.dense(f"Dense_{layer}", x)))
    return x


def resnet(net, x):
    x = max_pool(relu(net.norm("bn1", net.conv("conv1", x, 2))), padding=1)
    for name in net.names("layer"):
        block = net.within(name)
        layers, hidden = block.names("conv"), x
        of_block = 2 if name.endswith("_0") and name != "layer1_0" else 1
        for number, layer in enumerate(layers, start=1):
            # In the first of two layers, or in the second of three.
            stride = of_block if number == len(layers) - 1 else 1
            hidden = hidden if number == 1 else relu(hidden)
            hidden = block.norm(f"bn{number}", block.conv(layer, hidden, stride))
        if "downsample_conv" in block.params:
            x = block.conv_norm("downsample", x, of_block, same)
        x = relu(x + hidden)
    return x.mean(axis=(1, 2))


def densenet(net, x):
    if "norm0" in net.params:
        x = max_pool(relu(net.norm("norm0", net.conv("conv0", x, 2))), padding=1)
    else:
        x = net.conv("conv0", x)
    for number in range(1, 5):
        if net.names(f"transition{number - 1}"):
            block = net.within(f"transition{number - 1}")
            x = block.conv("conv", relu(block.norm("bn", x)))
            x = np.mean(windows(x, (2, 2), 2, [(0, 0)] * 2), axis=0)
        for name in net.names(f"denseblock{number}_"):
            block = net.within(name)
            hidden = block.conv("conv1", relu(block.norm("bn1", x)))
            hidden = block.conv("conv2", relu(block.norm("bn2", hidden)))
            x = np.concatenate([x, hidden], axis=-1)
    return relu(net.norm("norm5", x)).mean(axis=(1, 2))


def mobile(net, x, *, activation, strides, inner=None, squeezes=(silu, sigmoid)):
    """Inverted residuals; `inner` is the activation in them if it is another one."""
    x, inner = net.conv_norm("stem", x, 2, activation), inner or activation
    for name, stride in zip(net.names("block"), strides, strict=True):
        block, hidden = net.within(name), x
        if "expand_conv" in block.params:
            hidden = block.conv_norm("expand", hidden, 1, inner)
        hidden = block.conv_norm("depthwise", hidden, stride, inner)
        if "squeeze" in block.params:
            squeeze, means = block.within("squeeze"), hidden.mean(axis=(1, 2), keepdims=True)
            gate = squeeze.conv("expand", squeezes[0](squeeze.conv("reduce", means)))
            hidden = hidden * squeezes[1](gate)
        hidden = block.conv_norm("project", hidden, 1, same)
        x = x + hidden if x.shape == hidden.shape else hidden
    return net.conv_norm("last", x, 1, activation).mean(axis=(1, 2))


def mobilenet_v3(net, x, *, strides):
    squeezes = relu, hard_sigmoid
    x = mobile(net, x, activation=hard_swish, strides=strides, inner=relu, squeezes=squeezes)
    return hard_swish(net.dense("hidden", x))


def shufflenet(net, x):
    x = max_pool(net.conv_norm("conv1", x, 2), padding=1)
    for name in net.names("stage"):
        unit = net.within(name)
        stride = 2 if "branch1_conv" in unit.params else 1
        beside, hidden = np.split(x, 2, axis=-1) if stride == 1 else (x, x)
        if stride == 2:
            beside = unit.conv_norm("branch1_depthwise", beside, 2, same)
            beside = unit.conv_norm("branch1", beside)
        hidden = unit.conv_norm("branch2_before", hidden)
        hidden = unit.conv_norm("branch2_depthwise", hidden, stride, same)
        hidden = unit.conv_norm("branch2", hidden)
        x = np.empty((*hidden.shape[:-1], 2 * hidden.shape[-1]))
        x[..., ::2], x[..., 1::2] = beside, hidden
    return net.conv_norm("conv5", x).mean(axis=(1, 2))


def squeezenet(net, x):
    # 63 pixels are 29 now, then 14, 7 with a window that reaches beyond them, and 3.
    x = max_pool(relu(net.conv("conv1", x, 2, padding=0)))
    for name in net.names("fire"):
        if name in ("fire5", "fire9"):
            x = max_pool(x, beyond=1 if name == "fire5" else 0)
        fire = net.within(name)
        few = relu(fire.conv("squeeze", x))
        x = [fire.conv("expand1x1", few), fire.conv("expand3x3", few)]
        x = relu(np.concatenate(x, axis=-1))
    return x


def alexnet(net, x):
    x = max_pool(relu(net.conv("conv1", x, 4, padding=2)))
    x = max_pool(relu(net.conv("conv2", x)))
    for name in ("conv3", "conv4", "conv5"):
        x = relu(net.conv(name, x))
    x = adaptive_mean(max_pool(x), 6)
    return relu(net.dense("fc2", relu(net.dense("fc1", x))))


def vgg(net, x):
    for stage in range(1, 6):
        for name in net.names(f"conv{stage}_"):
            x = relu(net.conv(name, x))
        x = max_pool(x, 2)
    return relu(net.dense("fc2", relu(net.dense("fc1", adaptive_mean(x, 7)))))


def inception(net, x):
    """The stem of all Inceptions, and of the third the first block and one of long kernels."""
    for name, stride, padding in (("1a_3x3", 2, 0), ("2a_3x3", 1, 0), ("2b_3x3", 1, None)):
        x = net.conv_norm(f"Conv2d_{name}", x, stride, padding=padding)
    x = net.conv_norm("Conv2d_3b_1x1", max_pool(x))
    x = max_pool(net.conv_norm("Conv2d_4a_3x3", x, padding=0))
    for name, numbers in (
        ("Mixed_5b", {"branch1x1": 0, "branch5x5": 2, "branch3x3dbl": 3, "branch_pool": 0}),
        ("Mixed_6b", {"branch1x1": 0, "branch7x7": 3, "branch7x7dbl": 5, "branch_pool": 0}),
    ):
        block, ends = net.within(name), []
        for branch, number in numbers.items():
            hidden = mean_pool(x) if branch == "branch_pool" else x
            for layer in [f"{branch}_{index + 1}" for index in range(number)] or [branch]:
                hidden = block.conv_norm(layer, hidden)
            ends.append(hidden)
        x = np.concatenate(ends, axis=-1)
    return x.mean(axis=(1, 2))


def convnext(net, x):
    x = net.layer_norm("stem_norm", net.conv("stem_conv", x, 4, padding=0))
    for stage in range(4):
        if stage > 0:
            x = net.layer_norm(f"downsample{stage}_norm", x)
            x = net.conv(f"downsample{stage}_conv", x, 2, padding=0)
        for name in net.names(f"stage{stage}_"):
            block = net.within(name)
            hidden = block.layer_norm("norm", block.conv("conv_dw", x))
            hidden = block.dense("mlp_fc2", gelu(block.dense("mlp_fc1", hidden)))
            x = x + hidden * block.params["scale"]["gamma"]
    return net.layer_norm("norm", x.mean(axis=(1, 2)))


def vit(net, x, *, activation):
    x = net.conv("patch_embed", x, 8, padding=0).reshape(len(x), 16, -1)
    positions, token = net.params["pos_embed"][0], net.params["cls_token"][0]
    if "reg_token" in net.params:
        # With them, the class has no position.
        first = np.concatenate([token, net.params["reg_token"][0]])
    else:
        first, positions = token + positions[:1], positions[1:]
    first = np.broadcast_to(first, (len(x), *first.shape))
    x = np.concatenate([first, x + positions], axis=1)
    if "norm_pre" in net.params:
        x = net.layer_norm("norm_pre", x)
    for name in net.names("blocks"):
        block = net.within(name)
        of_heads = block.dense("attn_qkv", block.layer_norm("norm1", x))
        # Of each example, and of queries, keys and values: two heads.
        of_heads = of_heads.reshape(*x.shape[:2], 3, 2, -1).transpose(2, 0, 3, 1, 4)
        queries, keys, values = of_heads
        weights = softmax(queries @ keys.swapaxes(2, 3) / np.sqrt(queries.shape[-1]))
        mixed = (weights @ values).transpose(0, 2, 1, 3).reshape(x.shape)
        hidden = block.dense("attn_proj", mixed)
        x = x + (hidden * block.params["ls1"]["gamma"] if "ls1" in block.params else hidden)
        hidden = activation(block.dense("mlp_fc1", block.layer_norm("norm2", x)))
        hidden = block.dense("mlp_fc2", hidden)
        x = x + (hidden * block.params["ls2"]["gamma"] if "ls2" in block.params else hidden)
    x = net.layer_norm("norm", x[:, 0])
    return net.dense("proj", x) if "proj" in net.params else x
