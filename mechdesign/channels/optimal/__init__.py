"""The optimal metric-private channel (Bordenabe, Chatzikokolakis and Palamidessi 2014), certified.

`design` states the question and its proofs; `program` declares and solves its linear program, which `symmetry` makes small;
`exact` makes the answer private exactly and computes in integers what is proved; `page` is what a report says. Imports the files
of `channels` and the floors below.
"""
