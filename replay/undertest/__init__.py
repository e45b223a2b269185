"""A scheduler under test as a system to be explored."""
