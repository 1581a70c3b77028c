"""Independent noise whose scale differs by coordinate: problems P1–P4.

Source: Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*.
``question`` holds the data and what the requirement is worth, ``separable`` the problem behind P3 and P4 with its
closed form and its dual, ``model`` the same as a convex program, ``design`` the design, ``certificate`` and ``result``
what comes back; ``disparity`` measures how unequal a profile is.
"""
