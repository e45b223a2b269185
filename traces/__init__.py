"""What happened: the trace format, its reader and recorder, workloads and importers."""
