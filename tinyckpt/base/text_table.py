"""Aligned text and HTML tables, for a terminal and for a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from tinyckpt.base.display import html_escaped


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format rows in aligned columns: text to the left, numbers to the right.

    A column counts as numeric if all its entries begin with a digit, or are empty.

    >>> print(table(["policy", "peak"], [["store_all", "18"], ["sqrt_n", "9"]]))
    policy     peak
    store_all    18
    sqrt_n        9
    """
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = columns_of_numbers(header, rows)
    lines = []
    for row in (header, *rows):
        cells = [
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format the same table as HTML, for a notebook, whose styles it takes.

    >>> html_table(["policy"], [["<mine>"]])[-59:]
    '<td style="text-align: left">&lt;mine&gt;</td></tr></table>'
    """
    sides = ["right" if number else "left" for number in columns_of_numbers(header, rows)]

    def line(texts: Sequence[str], tag: str) -> str:
        cells = zip(texts, sides, strict=True)
        return "".join(
            f'<{tag} style="text-align: {side}">{html_escaped(text)}</{tag}>'
            for text, side in cells
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{line(header, 'th')}</tr>{body}</table>"


def columns_of_numbers(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each column whether it is numeric: entries begin with a digit, or are empty."""
    columns = zip(header, *rows, strict=True)
    return [all(not text or text[0].isdigit() for text in column[1:]) for column in columns]
