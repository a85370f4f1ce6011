"""What we chose. The layer stands; its models come with decisions themselves."""
