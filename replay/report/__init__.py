"""What a person or a program reads: pages of text, JSON, and the words that both share."""
