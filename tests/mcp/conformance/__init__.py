"""The protocol's own tools, run against the real server: the conformance suite over HTTP, the Inspector over stdio."""
