"""Independent noise whose scale differs by coordinate: problems P1–P4.

Source: Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*.
``question`` holds the data and what the requirement is worth, ``separable`` the problem behind P3 and P4 with its
closed form, its dual and its convex program, ``several`` and ``several_model`` changes under several bounds, ``composed`` δ of
the exact composition, ``mixed`` the search over types of noise, ``design`` the design, ``page`` what its results print and
draw; ``disparity`` measures how unequal a profile is.
"""
