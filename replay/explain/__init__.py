"""Worked pictures: what batching, admission, preemption and fairness are, from small simulated runs."""
