"""Private learning: scikit-learn estimators with designed noise, whose privacy is a certified result.

``second_moments`` fits principal components and linear models, ``generalized_linear`` logistic and other smooth losses, to records with declared bounds.
Both ask ``plan`` for noise that the package's own accounting certifies, and add it to sums that are exact to the last bit.

Needs scikit-learn (``pip install 'mechdesign[learning]'``). May import noise and every floor below it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
