"""One cheap design of every class, solved, checked twice and released, in any environment: ``python tests/smoke.py``."""

import warnings

import cheap

from mechdesign.evidence.serialize import dumps, loads


def main() -> None:
    """Print the names of what does not hold, and how many designs were solved."""
    warnings.simplefilter("ignore")
    wrong = []
    for name, (make, options) in cheap.DESIGNS.items():
        result = make().solve(**options)
        text = dumps(result)
        sound = result.certificate is not None and result.certificate.verify() and dumps(loads(text)) == text
        if not sound:
            wrong.append(name)
    print(f"{len(cheap.DESIGNS)} designs solved, certified and read back; not so: {wrong or 'none'}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
