"""Overviews: a whole trace in short, for pictures. One pass, bounded memory."""
