"""The fast checker: the readable checker's findings, row for row, at about the cost of reading the file."""
