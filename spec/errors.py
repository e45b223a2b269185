"""What can go wrong for a user of this package, as one small tree.

BatchspecError            anything below; its text is one line that says what to do
├── ProfileError          a profile or config with an unknown option, or a value of the wrong kind
├── SpecError             the spec used against its own rules (a program's mistake)
└── TraceError            input that cannot be read as a trace, workload or scenario

A broken rule is not an error: it is a `Violation`, which is data.
"""


class BatchspecError(Exception):
    """Base of every error a user can cause. `str()` of it is exactly one line."""


class ProfileError(BatchspecError):
    """An option that does not exist, or a value of the wrong kind. Mend the option that it names."""


class SpecError(BatchspecError):
    """The spec was called against its rules, for example an action applied to an unknown request."""


class TraceError(BatchspecError):
    """Input that is not a trace. Mend the file, column, row or header that it names."""
