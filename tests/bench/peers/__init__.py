"""Tessera beside Triton and MLServer: same machine, same models, same ONNX Runtime, same clients, one run."""
