"""Mutation testing of the checker: single faults in good traces, and what becomes of them."""
