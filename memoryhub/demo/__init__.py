"""A sample project that looks lived in: its story is data, told through the services that everybody uses."""
