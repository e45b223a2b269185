"""Data that comes with the package: a slice of a published production workload for the demo."""
