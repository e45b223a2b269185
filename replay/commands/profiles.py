"""`batchspec profiles`: what each engine family promises."""

from typing import Annotated

import typer

from batchspec.replay.claims import named_profile
from batchspec.replay.console import show
from batchspec.replay.report.claims import profile_page
from batchspec.replay.report.page import Page
from batchspec.spec.library import extends_of, load_profile, profile_names


def profiles(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A shipped profile, or a file of your own.")
    ] = None,
) -> None:
    """List the shipped profiles, or print what one claims, in sentences, and where from.

    Example:  batchspec profiles vllm-v1
    """
    if name is None:
        page = Page()
        page.table(
            ("profile", "what it is"),
            [(each, load_profile(each).summary or "") for each in profile_names()],
            indent=0,
        )
        show(page)
        return
    extends = extends_of(name) if name in profile_names() else None
    show(profile_page(named_profile(name), extends))
