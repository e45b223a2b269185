"""What can go wrong for a user of the engine; each text is one line that says what to do."""

from batchspec.spec.errors import BatchspecError


class EngineError(BatchspecError):
    """A model folder, an option or a request that this engine cannot serve. Mend what it names."""
