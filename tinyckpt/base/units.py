"""Formatting of quantities with units: bytes in binary prefixes, costs, counts."""

from __future__ import annotations


def size_text(nbytes: float) -> str:
    """Format a size in bytes with a binary prefix.

    >>> size_text(2048), size_text(67108864), size_text(12)
    ('2.0 KiB', '64.0 MiB', '12 B')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if nbytes < 1024 or unit == "TiB":
            break
        nbytes /= 1024
    return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"


def memory_text(amount: int, unit: str, word: str = "node") -> str:
    """Format an amount of memory, in bytes or in nodes, for which pictures have another word.

    >>> memory_text(2048, "bytes"), memory_text(1, "nodes"), memory_text(9, "nodes", "value")
    ('2.0 KiB', '1 node', '9 values')
    """
    return counted(amount, word) if unit == "nodes" else size_text(amount)


def cost_text(cost: float, unit: str) -> str:
    """Format a cost with its unit; FLOPs and bytes moved with decimal prefixes.

    >>> cost_text(42, "evaluations"), cost_text(8.0585e11, "FLOPs"), cost_text(0.25, "seconds")
    ('42 evaluations', '805.85 GFLOPs', '0.25 seconds')
    """
    if unit in ("FLOPs", "bytes moved"):
        for prefix, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
            if cost >= factor:
                return f"{cost / factor:.5g} {prefix}{unit}"
    if cost == 1 and unit == "evaluations":
        return "1 evaluation"
    return f"{cost:,.10g} {unit}" if float(cost).is_integer() else f"{cost:.6g} {unit}"


def counted(count: int, what: str) -> str:
    """Format a count with its noun, in the plural where needed.

    >>> counted(1, "slot"), counted(3, "slot")
    ('1 slot', '3 slots')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
