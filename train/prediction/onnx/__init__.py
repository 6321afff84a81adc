"""A classifier and its rule as an ONNX file.

The file is lowered from the jaxprs of the same functions that `train.predict` compiles, one small
function for each primitive of JAX. No converter of another package can do it: the one for JAX fails
if the number of images is not fixed, and needs an older orbax than the program. The networks and
the rules use a closed set of primitives, and a jaxpr that is traced for n images keeps n in the
graph. A few rules search by the bits of floats, which ONNX does not have before opset 26;
`portable` has forms of these that sort instead, in JAX too, which have the same sets.

There is no file for LiteRT: its converter reads TensorFlow's programs, so that every export would
need TensorFlow, and phones run ONNX Runtime too.
"""
