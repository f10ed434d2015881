"""Code generation: from a schedule to straight-line NumPy source."""

from tinyckpt.codegen import in_place

in_place.install()  # a kind of step that the engine takes from here
