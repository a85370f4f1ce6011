"""Search by meaning: texts as vectors, updated by the worker and blended with full-text search."""

# Only the process that holds the model imports numpy and onnxruntime; all others send it requests (decision 18).
