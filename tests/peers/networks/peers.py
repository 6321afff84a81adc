"""The networks of torchvision and timm, with random weights of the order of trained ones."""

import copy

import torch

from tests.peers.networks import published_networks
from tests.peers.networks.published_networks import timm

NUM_CLASSES = 37
# The embeddings of CLIP's towers, by the features of their tokens.
_EMBEDDINGS = {768: 512, 1024: 768}


class _Tower(timm.models.vision_transformer.VisionTransformer):
    """A tower of CLIP as it is published, its projection included, and a head behind it."""

    def forward_head(self, tokens, pre_logits=False):
        return self.head(self.proj(self.pool(tokens)))


def make(name, num_classes=NUM_CLASSES):
    """The network of a name, random, in evaluation; dropout is off in training too."""
    torch.manual_seed(0)
    network = published_networks.make(name, num_classes)
    if "_clip_" in name:
        width = network.num_features
        embedding = _EMBEDDINGS[width]
        network.proj = torch.nn.Linear(width, embedding, bias=False)
        network.head = torch.nn.Linear(embedding, num_classes)
        network.__class__ = _Tower
    return drawn(network)


def drawn(network):
    """A network with random statistics and scales, in evaluation, without dropout."""
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.2)
                module.running_mean.normal_(0, 0.2)
                module.running_var.uniform_(0.5, 2)
        for parameter_name, parameter in network.named_parameters():
            # Published networks start with layer scales of 1e-6, by which all else would vanish.
            if "gamma" in parameter_name:
                parameter.uniform_(0.5, 1.5)
    return published_networks.without_randomness(network).eval()


def apply(network, images):
    """Images [n, height, width, channels] to logits [n, L], both NumPy arrays."""
    with torch.no_grad():
        return network(torch.tensor(images.transpose(0, 3, 1, 2))).numpy()


def two_steps(network, batches, dtype):
    """Two batches in training: the logits of the second, and the statistics of batch norm.

    The running variances average biased variances, as in the networks of this project.
    """
    network = copy.deepcopy(network).to(dtype).train()
    numbers = {}
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.BatchNorm2d):

            def note(module, inputs, name=name):
                numbers[name] = inputs[0].numel() // inputs[0].shape[1]

            module.register_forward_pre_hook(note)
    statistics = {
        key: tensor.clone().numpy()
        for key, tensor in network.state_dict().items()
        if key.endswith(("running_mean", "running_var"))
    }
    with torch.no_grad():
        for images in batches:
            logits = network(torch.tensor(images.transpose(0, 3, 1, 2), dtype=dtype))
    for key, tensor in network.state_dict().items():
        if key in statistics:
            module = key.rpartition(".")[0]
            kept = (1 - network.get_submodule(module).momentum) ** 2 * statistics[key]
            number = numbers[module]
            biased = (number - 1) / number if key.endswith("running_var") else 1
            statistics[key] = kept + (tensor.numpy() - kept) * biased
    return logits.numpy(), statistics


def gradients(network, images, weights):
    """The gradients of the sum of logits times weights, in evaluation, by the names of parameters.

    The network is left without any.
    """
    logits = network(torch.tensor(images.transpose(0, 3, 1, 2)))
    (logits * torch.tensor(weights)).sum().backward()
    found = {name: parameter.grad.numpy() for name, parameter in network.named_parameters()}
    network.zero_grad()
    return found
