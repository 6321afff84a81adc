"""A classifier and its rule as an ONNX file.

The file is lowered from the jaxpr of the function that `train.predict` compiles, one small function
for each primitive of JAX. The converter of another package for JAX has no forms of some of these,
such as windows of pools, and needs an older orbax than the program.
"""
