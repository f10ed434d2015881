"""Pictures as pixels, and the animations made of them."""
