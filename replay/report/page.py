"""A page: lines of text with a little colour, safe to print whatever a trace puts into its ids."""

import re
import textwrap
from collections.abc import Iterable, Sequence

Segment = str | tuple[str, str]
"""A piece of a line: plain text, or text and a style such as `bold` or `red`."""

WIDTH = 100
_LONGEST = 600
_LONGEST_PARAGRAPH = 6000
# Control characters, and those that reorder or hide text on a terminal (bidirectional marks, zero width).
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def plain(text: object, longest: int = _LONGEST) -> str:
    """`text` with every character that could steer a terminal written as an escape, and not too long."""
    words = str(text)
    if len(words) > longest:
        words = words[: longest - 1] + "…"
    return _UNSAFE.sub(lambda match: match.group().encode("unicode_escape", "surrogatepass").decode(), words)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 event`, `2,000 events`."""
    word = noun if number == 1 else plural or noun + "s"
    return f"{number:,} {word}"


class Page:
    """Lines in the order in which they are read. `text()` is the page without colour."""

    def __init__(self) -> None:
        """An empty page."""
        self.lines: list[list[tuple[str, str]]] = []

    def add(self, *segments: Segment, indent: int = 0) -> None:
        """Add one line. A line break or a control character inside a segment is written as an escape."""
        line = [(" " * indent, "")] if indent else []
        for segment in segments:
            text, style = segment if isinstance(segment, tuple) else (segment, "")
            line.append((plain(text), style))
        self.lines.append(line)

    def wrap(self, text: str, style: str = "", indent: int = 0, hang: int = 0, first: str = "") -> None:
        """Add a paragraph, broken into lines of at most `WIDTH` columns; `first` leads its first line."""
        lead = " " * indent
        lines = textwrap.wrap(
            plain(text, _LONGEST_PARAGRAPH),
            width=WIDTH,
            initial_indent=lead + first,
            subsequent_indent=lead + " " * (hang or len(first)),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines or [(lead + first).rstrip()]:
            self.lines.append([(line, style)])

    def gap(self) -> None:
        """Add an empty line, unless the page ends with one already."""
        if self.lines and self.lines[-1]:
            self.lines.append([])

    def table(
        self, head: Sequence[str], rows: Iterable[Sequence[object]], right: str = "", indent: int = 2
    ) -> None:
        """Add a table: columns two blanks apart, `right` has an `r` for each column set to the right.

        A cell may be a text and a style.
        """
        cells = [[_cell(cell) for cell in row] for row in (head, *rows)]
        widths = [max(len(row[index][0]) for row in cells) for index in range(len(head))]
        for number, row in enumerate(cells):
            line = [
                (text.rjust(width) if right[index : index + 1] == "r" else text.ljust(width), style)
                for index, ((text, style), width) in enumerate(zip(row, widths, strict=True))
            ]
            self.lines.append(_joined(line, " " * indent, "" if number else "dim"))

    def text(self) -> str:
        """The whole page as plain text that ends with a line break."""
        return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in self.lines)


def _cell(cell: object) -> tuple[str, str]:
    if isinstance(cell, tuple):
        return plain(cell[0]), str(cell[1])
    return plain(cell), ""


def _joined(cells: Sequence[tuple[str, str]], lead: str, style: str) -> list[tuple[str, str]]:
    """The cells of a line two blanks apart, neighbours of one style as one piece, no blanks at its end."""
    pieces: list[tuple[str, str]] = [(lead, style)] if lead else []
    for place, (text, own) in enumerate(cells):
        last = place == len(cells) - 1
        pieces.append((text if last else text + "  ", own or style))
    merged: list[tuple[str, str]] = []
    for text, own in pieces:
        if merged and (merged[-1][1] == own or not text.strip()):
            merged[-1] = (merged[-1][0] + text, merged[-1][1])
        else:
            merged.append((text, own))
    if merged:
        merged[-1] = (merged[-1][0].rstrip(), merged[-1][1])
    return merged
