"""The HTML report: one file with everything in it, which opens from disk and loads nothing."""
