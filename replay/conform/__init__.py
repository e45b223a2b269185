"""The conformance suite: runs that a profile permits, and what a scheduler under test makes of them."""
