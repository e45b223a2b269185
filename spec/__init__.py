"""What is right: requests, actions, rules, policies and profiles. Pure Python, no I/O."""
