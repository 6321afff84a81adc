"""The networks that the thesis compares on Pl@ntNet-300K."""

# In the order of their numbers, from 1, in figure 3.8. Its footnote has efficientnet_b1 twice; the
# first is efficientnet_b0, as in table 3.3.
NETWORKS = (
    *("alexnet", "densenet121", "densenet161", "densenet169", "densenet201"),
    *("efficientnet_b0", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3"),
    *("efficientnet_b4", "inception_resnet_v2", "inception_v3", "inception_v4"),
    *("mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small"),
    *("resnet101", "resnet152", "resnet18", "resnet34", "resnet50"),
    *("shufflenet", "squeezenet", "vgg11", "vit_base_patch16_224"),
    *("wide_resnet101_2", "wide_resnet50_2"),
)
