"""The packed form of the explorer's space: states as a few machine words, actions as compiled loops."""
