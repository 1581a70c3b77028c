"""`compare` marks results for another question, and takes bounds from those of the question itself only."""

import json

import mechdesign as md
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.verifier.verify import verify
from tests.cheap import sealed

pure, half = md.PureDP(1.0), md.NumericQuery(sensitivity=0.5)
also = {"staircase": md.calibrate("staircase", privacy=pure, sensitivity=1.0)}
found = md.compare(half, pure, mechanisms=["laplace"], also=also, progress=False)
print(found, f"bounds: {found.bounds}", f"marked: {found.others}", sep="\n")
itself = md.compare(half, pure, mechanisms=["laplace", "staircase"], progress=False)
print("\nwith the staircase on the menu:", itself.bounds, itself.others)

whole = md.compare(md.NumericQuery(), pure, mechanisms=["laplace"], progress=False)
payload = json.loads(dumps(whole))["payload"]
for value in (1.0, 0.5):
    payload["fields"]["question"]["fields"]["sensitivity"] = value
    text = sealed(payload)
    own = [claim.claim for claim in loads(text).agreements() if not claim.holds]
    other = [claim for claim, _, holds in verify(text).rows if not holds]
    print(f"the file with sensitivity {value}: the package refuses {own}; the stand-alone verifier {other}")
