"""The optimal metric-private channel (Bordenabe, Chatzikokolakis and Palamidessi 2014), certified.

`design` states the question; `symmetry` and `rows` make its linear program small, `program` declares and solves it,
`repair` makes the answer private exactly, `certificate` proves privacy, value and lower bound. Imports the files of
`channels` beside it and the floors below.
"""
