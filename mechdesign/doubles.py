"""What doubles hold: limits that algorithms on losses, masses and scales share."""

UNIT = 2.0**-53
"""Relative error of one operation, at most."""
ROUNDED = 1e-14
"""Relative error of some tens of operations."""
DOWN = 1 - 4e-15
"""A factor that outweighs the roundings of a closed form."""
TINY = 1e-290
"""More than what underflows in a product; masses below it may as well have an infinite loss."""
SMALLEST = 1e-280
"""The smallest δ that can be certified: tails are integrated down to 1e-300."""
LARGEST_POWER = 700.0
"""An exponent whose power is a double."""
