"""Schedulers under test behind the protocol of the harness, one engine a module."""
