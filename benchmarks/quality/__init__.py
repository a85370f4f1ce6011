"""How well the hub finds: benchmarks of retrieval with known answers, each in stores of its own.

Documents are written as clients write them. What the right answers are is kept beside the stores, never in them.
"""
