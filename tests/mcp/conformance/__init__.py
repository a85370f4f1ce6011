"""The protocol's own test tools: the conformance suite over HTTP and the Inspector over stdio."""
