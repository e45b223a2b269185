"""One format a module: production records in, workloads and traces out."""
