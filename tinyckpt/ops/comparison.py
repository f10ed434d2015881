"""Elementwise comparisons, from the rows of ``elementwise_table``: booleans without derivative."""

from tinyckpt.ops.elementwise import binary

greater = binary("greater")
greater_equal = binary("greater_equal")
less = binary("less")
less_equal = binary("less_equal")
equal = binary("equal")
not_equal = binary("not_equal")
