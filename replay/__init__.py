"""The two held together: checker, simulator, harness, reports and command line."""
