"""Markup: HTML out of text, every piece of a trace escaped on its way in."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from batchspec.replay.report.page import plain


@dataclass(frozen=True, slots=True)
class Html:
    """Markup that is safe as it stands. Everything else is escaped where it is put in."""

    text: str

    def __str__(self) -> str:
        """The markup."""
        return self.text


Piece = Html | str | int | float | None


def safe(piece: object, longest: int = 6000) -> str:
    """A piece as markup: text escaped, and characters that hide or reorder text written out."""
    if isinstance(piece, Html):
        return piece.text
    return "" if piece is None else html.escape(plain(piece, longest))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element. A trailing underscore of an attribute's name is dropped, others become hyphens."""
    said = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{safe(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{name}{said}>{''.join(map(safe, children))}</{name}>")


def join(pieces: Iterable[object], between: str = "") -> Html:
    """Pieces one behind the other."""
    return Html(between.join(map(safe, pieces)))


def block(text: str, name: str | None = None) -> Html:
    """Text of several lines as it stands."""
    lines = "\n".join(safe(line) for line in text.splitlines())
    return Html(f"<pre{f' id={name!r}' if name else ''}>{lines}</pre>")


def table(
    head: Sequence[Piece],
    rows: Iterable[Sequence[Piece]],
    numbers: str = "",
    *,
    marked: int | None = None,
    wide: bool = False,
    caption: str | None = None,
) -> Html:
    """A table. `numbers` has an `n` for each column set to the right; `marked` is a row to point out."""
    classes = ["n" if numbers[at : at + 1] == "n" else None for at in range(len(head))]
    top = join(tag("th", cell, class_=kind, scope="col") for cell, kind in zip(head, classes, strict=True))
    body = [
        tag(
            "tr",
            join(tag("td", cell, class_=kind) for cell, kind in zip(row, classes, strict=True)),
            class_="marked" if number == marked else None,
        )
        for number, row in enumerate(rows)
    ]
    made = tag(
        "table",
        tag("caption", caption) if caption else "",
        tag("thead", tag("tr", top)) if any(head) else "",
        tag("tbody", join(body, "\n")),
        class_="wide" if wide else None,
    )
    return tag("div", made, class_="scroll")


def section(name: str, heading: str, *children: object, long: bool = False) -> Html:
    """A part of the page, with its heading and a name to link to."""
    classes = "card long" if long else "card"
    return tag(
        "section",
        tag("h2", heading, id=f"{name}-h"),
        *children,
        id=name,
        class_=classes,
        aria_labelledby=f"{name}-h",
    )
