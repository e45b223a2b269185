"""Shrinking a recorded trace: the smallest set of requests and steps that still shows a finding."""
