"""What each engine family promises, as data: one TOML file a profile, read by `batchspec.spec.library`."""
