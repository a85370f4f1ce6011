"""Finding by meaning: texts as vectors, kept up by the worker, asked beside the full text.

Only the process that holds the model imports numpy and onnxruntime; every other one asks it over a local connection.
"""
