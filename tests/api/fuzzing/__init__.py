"""What schemathesis is told of the hub beside its OpenAPI description."""
