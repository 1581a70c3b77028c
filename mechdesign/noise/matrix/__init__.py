"""The optimal matrix mechanism: linear queries on counts, answered from one set of correlated noises.

``changes`` says what one person does to the counts, ``solving`` finds the strategy with two proved bounds, ``strategy`` is the
law that is released, ``published`` holds the factorizations of the literature.
"""
