"""Schedulers under test behind the protocol of the harness, one engine a module.

An adapter is a class `Adapter` with the members of `harness.Scheduler` and a factory `make(profile)`; more
factories for more of the engine's schedulers. It imports the installed engine, inside functions, and no code
of it stands here. It reads private names, so it knows versions: one that it was not tried with is refused
in a line that says which ones were, as is a limit or claim that the engine cannot have. Its docstring lists
what is replaced: only what is no scheduler (the model, streams, sockets). It takes decisions down where they
are made, in the order in which they are made, and what an engine does not tell it leaves out.

`scripts/thirdparty NAME` makes an environment with the pinned engine. A recorder for production is a module
of its own beside the adapter (`vllm_recorder`); `recording` is what recorders share.
"""
