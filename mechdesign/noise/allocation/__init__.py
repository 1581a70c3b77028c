"""Independent noise whose scale differs by coordinate: problems P1–P4.

Source: Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*.
``scales_problem`` is a problem on the unknown scales (`mechdesign.model.scales`), as a design's `problem` declares it: ``declared`` has it in numbers,
``solving`` solves and repairs it, ``lagrangian`` and ``proofs`` prove it. ``design`` is the design, ``separable`` its closed forms,
``several`` and ``several_model`` changes under several bounds, ``composed`` δ of the exact composition, ``mixed`` the search over types of noise, ``page`` what
results print and draw; ``disparity`` measures how unequal a profile is.
"""
