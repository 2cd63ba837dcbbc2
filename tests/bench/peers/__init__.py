"""Compares Tessera with Triton and MLServer on one machine, with the same models, ONNX Runtime and clients."""
