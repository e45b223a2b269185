"""The commands of the command line, one noun a module. Each is a function with its options and help."""
