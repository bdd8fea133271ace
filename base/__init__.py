"""The ground: what every package may import, and what imports none of them."""
