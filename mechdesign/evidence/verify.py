#!/usr/bin/env python3
"""Check a result file of mechdesign with Python's standard library alone.

    python verify.py result.json

Every claim is printed as *proved* (exact or outward-rounded arithmetic), *recomputed* (doubles) or *claimed* (not checked
here). Exit code 0: all that is checked holds; 1: something does not, or the file is damaged; 2: this kind of result is not
covered. Covered are quantizers (pure local privacy, and metric privacy with the absolute metric), metric-private channels,
optimal lattice noise and noise allocations. Nothing here is shared with the package: it is a second opinion.
"""

# mypy: ignore-errors
import bisect
import hashlib
import json
import math
import sys
from fractions import Fraction
from itertools import accumulate, pairwise

NEAR = 1e-9


class NotCovered(Exception):
    """No check of this kind of result is written here."""


class Refused(Exception):
    """The file is not what mechdesign writes."""


class Account:
    """Claims, each with how it was checked and whether it holds."""

    def __init__(self):
        self.rows = []

    def proved(self, claim, holds):
        self.rows.append((claim, "proved", bool(holds)))

    def recomputed(self, claim, shown, found):
        close = abs(shown - found) <= NEAR * max(abs(found), 1e-12)
        self.rows.append((f"{claim} {shown:.12g}", "recomputed", close))

    def shown(self, result, *keys):
        for key in keys:
            stated, shown = result["certificate"][key], result[key]
            near = stated is None or abs(stated - shown) <= NEAR * abs(shown)
            self.proved(f"the {key.replace('_', ' ')} shown is the certificate's", near)

    def claimed(self, claim):
        self.rows.append((claim, "claimed", True))


# Reading -----------------------------------------------------------------------------------------------------------


def read(text):
    """The payload of a file as plain values: objects are dictionaries with their kind under ""."""
    if len(text) > 2**26:
        raise Refused("too large")
    document = json.loads(text, object_pairs_hook=once)
    payload = document["payload"]
    canonical = json.dumps(
        payload, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )
    if document["format"] != "mechdesign-result" or document["version"] != 1:
        raise Refused("not a mechdesign-result file of version 1")
    if hashlib.sha256(canonical.encode()).hexdigest() != document["sha256"]:
        raise Refused("the checksum does not match")
    return plain(payload)


def once(pairs):
    if len({key for key, _ in pairs}) < len(pairs):
        raise Refused("a key stands twice in one object")
    return dict(pairs)


def plain(node):
    if isinstance(node, list):
        return [plain(child) for child in node]
    if not isinstance(node, dict):
        return node
    if "$kind" in node:
        return {"": node["$kind"], **{key: plain(child) for key, child in node["fields"].items()}}
    if "$fraction" in node:
        return Fraction(node["$fraction"])
    if "$float" in node:
        return float(node["$float"])
    if "$law" in node:
        named = {key: plain(child) for key, child in node["kwds"]["$items"]}
        return {"": "law", "name": node["$law"], "args": plain(node["args"]), **named}
    for tag in ("$array", "$tuple", "$table", "$items"):
        if tag in node:
            return plain(node[tag])
    return None


def exact(value):
    """A number of the file as the rational that it is."""
    return Fraction(value)


# Exponentials ------------------------------------------------------------------------------------------------------


def exp_bounds(x, bits=320):
    """Rationals below and above e^x: a Taylor interval of x / 2^k, squared k times with outward rounding."""
    x = Fraction(x)
    if abs(x) > 2**14:
        raise Refused("an exponent is too large")
    if x < 0:
        low, high = exp_bounds(-x, bits)
        return 1 / high, 1 / low
    k = max(0, math.ceil(math.log2(x + 1)) + 2)
    small, bits = x / 2**k, bits + 2 * k
    unit, total, term = 1 << bits, Fraction(0), Fraction(1)
    for n in range(1, 60):
        total += term
        term = Fraction(math.floor(term * small / n * unit * 2**20), unit * 2**20)
    low, high = math.floor(total * unit), math.floor((total + 2 * term) * unit) + 64
    for _ in range(k):
        low, high = (low * low) >> bits, ((high * high) >> bits) + 1
    return Fraction(low, unit), Fraction(high, unit)


# Quantizers --------------------------------------------------------------------------------------------------------


def selection_segments(law):
    """Segments (x0, x1, row at x0, row at x1) of a selection law; rows sum to one and have mean x by construction."""
    bins, low, high = law["bins"], law["lower"], law["upper"]
    if any(min(row) < 0 or sum(row) <= 0 for row in [*law["left"], *law["right"]]):
        raise Refused("selection weights must not be negative")
    for a, b in pairwise([low, *[v for v in bins if low < v < high], high]):
        j = min(sum(v <= a for v in bins), len(bins) - 1)
        left, right = law["left"][j - 1], law["right"][len(bins) - j - 1][::-1]
        rows = []
        for x in (a, b):
            row = [Fraction(0)] * len(bins)
            for l, u in enumerate(left):
                for r, v in enumerate(right, start=j):
                    if u and v:
                        share = Fraction(u * v, sum(left) * sum(right))
                        row[l] += share * (bins[r] - x) / (bins[r] - bins[l])
                        row[r] += share * (x - bins[l]) / (bins[r] - bins[l])
            rows.append(row)
        yield a, b, *rows


def table_segments(law):
    yield from zip(law["knots"], law["knots"][1:], law["starts"], law["ends"])


class BlockFill:
    """Floors a, and a block of length 1 − Σa laid over weights (ρ − 1)a so that the mean is x."""

    def __init__(self, law):
        self.bins, self.floors, rho = law["bins"], law["floors"], law["rho"]
        self.weights = [(rho - 1) * a for a in self.floors]
        self.edges = list(accumulate(self.weights, initial=Fraction(0)))
        self.block = 1 - sum(self.floors)
        room = self.edges[-1] - self.block
        inside = {e - d for e in self.edges for d in (0, self.block)}
        self.places = sorted({Fraction(0), room, *(s for s in inside if 0 < s < room)}) if room >= 0 else []
        moments = list(accumulate((w * b for w, b in zip(self.weights, self.bins)), initial=Fraction(0)))
        base = sum(a * b for a, b in zip(self.floors, self.bins))
        self.means = [
            base + self._upto(s + self.block, moments) - self._upto(s, moments) for s in self.places
        ]

    def _upto(self, s, moments):
        k = min(bisect.bisect_right(self.edges, s), len(self.bins)) - 1
        return moments[k] + (s - self.edges[k]) * self.bins[k]

    def row(self, x):
        """The probabilities at x as doubles."""
        k = min(max(bisect.bisect_right(self.means, x), 1), len(self.means) - 1)
        (m0, m1), (s0, s1) = self.means[k - 1 : k + 1], self.places[k - 1 : k + 1]
        s = s0 if m1 == m0 else s0 + (s1 - s0) * (x - m0) / (m1 - m0)
        t = s + self.block
        return [
            float(a + max(min(t, hi) - max(s, lo), 0))
            for a, lo, hi in zip(self.floors, self.edges, self.edges[1:])
        ]


def quantizer(result, account):
    design, mechanism = result["design"], result["mechanism"]
    law, privacy = mechanism["law"], design["privacy"]
    if law is None:
        raise Refused("no exact law")
    metric = result[""] == "metric-quantizer-result"
    if privacy[""] != "metric-dp" if metric else privacy[""] != "pure-dp":
        raise NotCovered(f"quantizers with {privacy['']}")
    epsilon = exact(privacy["epsilon"])
    own = result["certificate"]["law"]
    account.proved("the certificate's law is the mechanism's", own == law)
    stated = result["certificate"]
    for key in ("prior", "loss"):
        account.proved(f"the certificate's {key} is the design's", stated[key] in (None, design[key]))
    account.proved("the certificate's budget is the design's", stated["epsilon"] == privacy["epsilon"])
    account.shown(result, "value", "lower_bound")
    bins = law["bins"]
    account.proved("outputs increase", all(a < b for a, b in pairwise(bins)))
    low, high = map(exact, design.get("input_range") or (mechanism["knots"][0], mechanism["knots"][-1]))
    asked = design.get("bins")
    if isinstance(asked, list):
        account.proved("outputs are the design's", list(map(exact, asked)) == bins)
    bias = exact(design.get("max_bias") or 0)
    rho = exp_bounds(epsilon)[0]
    if law[""] == "block-fill-law":
        fill = BlockFill(law)
        account.proved("inputs are the design's", (law["lower"], law["upper"]) == (low, high))
        account.proved(
            "floors are not negative and leave room", min(law["floors"]) >= 0 <= fill.block and fill.places
        )
        account.proved("every input is the mean of a row", fill.means[0] <= low and high <= fill.means[-1])
        account.proved(f"privacy loss at most {float(epsilon)!r}", law["rho"] <= rho)
        rows = [fill.row(exact(x)) for x in mechanism["knots"]]
        segments = [(a, b, p, q) for (a, b), (p, q) in zip(pairwise(mechanism["knots"]), pairwise(rows))]
    elif law[""] in ("selection-law", "rational-table"):
        segments = list(selection_segments(law) if law[""] == "selection-law" else table_segments(law))
        account.proved("inputs are the design's", segments[0][0] == low and segments[-1][1] == high)
        account.proved("knots increase", all(a < b for a, b, _, _ in segments))
        ends = [(x, row) for a, b, p, q in segments for x, row in ((a, p), (b, q))]
        account.proved("rows sum to 1", all(sum(row) == 1 for _, row in ends))
        account.proved("no probability is negative", all(min(row) >= 0 for _, row in ends))
        means = (abs(sum(b * p for b, p in zip(bins, row)) - x) for x, row in ends)
        account.proved(f"bias at most {float(bias)!r}", max(means) <= bias)
        if metric:
            metric_privacy(design, epsilon, segments, account)
        else:
            columns = list(zip(*(row for _, row in ends)))
            account.proved(
                f"privacy loss at most {float(epsilon)!r}", all(max(c) <= rho * min(c) for c in columns)
            )
    else:
        raise NotCovered(f"laws of kind {law['']}")
    shown = [*zip(mechanism["starts"], mechanism["ends"])]
    worst = max(
        abs(s - t) for seg, rows in zip(segments, shown) for p, q in zip(seg[2:], rows) for s, t in zip(p, q)
    )
    knots = [*(seg[0] for seg in segments), segments[-1][1]]
    drift = max(abs(float(a) - b) for a, b in zip(knots, mechanism["knots"]))
    same = len(shown) == len(segments) and worst <= NEAR and drift <= NEAR * max(map(abs, map(float, bins)))
    account.proved("the table shown is the law", same and [float(b) for b in bins] == mechanism["bins"])
    found = expected_loss(design, mechanism)
    if found is None:
        account.claimed(f"the value is {result['value']:.12g}")
    else:
        account.recomputed("the value is", result["value"], found)
    if result["lower_bound"] is not None:
        account.claimed(f"no mechanism does better than {result['lower_bound']:.12g}")


def metric_privacy(design, epsilon, segments, account):
    if design["privacy"]["metric"] != "absolute" or design["inputs"] is not None:
        raise NotCovered("metric privacy other than with the absolute metric on a continuum")
    joined = all(s[3] == t[2] for s, t in pairwise(segments))
    # Where p is affine, its logarithm rises by at most ε a unit if |Δp| ≤ ε Δx min(p): adjacent rows decide all pairs.
    lipschitz = all(
        abs(p - q) <= epsilon * (b - a) * min(p, q) for a, b, P, Q in segments for p, q in zip(P, Q)
    )
    account.proved(f"privacy loss at most {float(epsilon)!r} |x - x'|", joined and lipschitz)


def expected_loss(design, mechanism):
    """The value in doubles, None where this prior, loss or objective is not covered."""
    loss, prior = design["loss"], design["prior"]
    if loss["function"] is not None or design.get("objective", "mean") != "mean":
        return None
    bins, knots = mechanism["bins"], mechanism["knots"]

    def cost(x, row):
        return sum(
            p * (loss["absolute"] * abs(b - x) + loss["squared"] * (b - x) ** 2) for b, p in zip(bins, row)
        )

    def row_at(k, x):
        t = (x - knots[k]) / (knots[k + 1] - knots[k])
        return [a + t * (b - a) for a, b in zip(mechanism["starts"][k], mechanism["ends"][k])]

    law = prior.get("law")
    if prior[""] != "prior-law" or law["name"] != "uniform":
        return None
    given = {"loc": 0, "scale": 1, **law, **dict(zip(("loc", "scale"), law["args"]))}
    loc, scale = given["loc"], given["scale"]
    if [loc, loc + scale] != [knots[0], knots[-1]]:
        return None
    parts = []
    for k, (a, b) in enumerate(pairwise(knots)):
        cuts = [a, *(v for v in bins if a < v < b), b]
        for u, v in pairwise(cuts):  # a cubic on each piece: Simpson's rule is exact
            values = [cost(x, row_at(k, x)) for x in (u, (u + v) / 2, v)]
            parts.append((v - u) / 6 * (values[0] + 4 * values[1] + values[2]))
    return math.fsum(parts) / scale


# Channels ----------------------------------------------------------------------------------------------------------


def channel(result, account):
    design, mechanism, certificate = result["design"], result["mechanism"], result["certificate"]
    weights, alpha, distances = certificate["weights"], exact(certificate["alpha"]), certificate["distances"]
    n, k, total = len(weights), len(weights[0]), sum(weights[0])
    items = range(n)
    account.proved("the certificate's alpha is the design's", certificate["alpha"] == design["alpha"])
    account.proved("the certificate's channel is the mechanism's", mechanism["weights"] in (None, weights))
    shown = all(
        abs(w / total - p) <= 1e-12 for r, s in zip(weights, mechanism["matrix"]) for w, p in zip(r, s)
    )
    account.proved("the matrix shown is the channel", shown and len(mechanism["matrix"]) == n)
    account.proved("rows sum to 1", all(sum(row) == total and min(row) >= 0 for row in weights))
    given = space_distances(design["space"])
    if given is None:
        account.claimed("the distances are those of the space")
    else:
        far = max(abs(a - b) for r, s in zip(given, distances) for a, b in zip(r, s))
        account.proved("the distances are those of the space", far <= 1e-12 * max(map(max, given)))
    bounds = {d: exp_bounds(alpha * exact(d)) for row in distances for d in row}
    account.proved(
        f"privacy of all pairs at alpha = {float(alpha)!r}",
        all(
            p <= bounds[distances[x][z]][0] * q
            for x in items for z in items if x != z
            for p, q in zip(weights[x], weights[z])
        ),
    )  # fmt: skip
    prior = [exact(p) for p in certificate["prior"]]
    loss = [[exact(v) for v in row] for row in certificate["loss"]]
    asked = [1] * n if design["prior"] is None else design["prior"]
    ratio = max(abs(exact(p) / sum(prior) - exact(a) / sum(map(exact, asked))) for p, a in zip(prior, asked))
    account.proved("the prior is the design's", ratio <= 1e-12 and min(prior) >= 0)
    if design["loss"] == "metric":
        account.proved("the loss is the design's", certificate["loss"] == distances)
    else:
        account.claimed("the loss is the design's")
    prior = [p / sum(prior) for p in prior]
    value = (
        sum(p * sum(w * c for w, c in zip(row, costs)) for p, row, costs in zip(prior, weights, loss)) / total
    )
    account.proved(
        f"the value is {result['value']!r}",
        value <= exact(certificate["value"]) <= result["value"] * (1 + NEAR),
    )
    account.proved("and not less", exact(result["value"]) * (1 - exact(1e-12)) <= value)
    reduced = [[p * c for c in costs] for p, costs in zip(prior, loss)]
    offset = Fraction(0)
    for (x, z, y), m in zip(certificate["triples"], map(exact, certificate["multipliers"])):
        if m < 0:
            raise Refused("a multiplier is negative")
        reduced[x][y] += m
        reduced[z][y] -= bounds[distances[x][z]][1] * m
    if certificate["inputs"] is not None:
        free, goal, query = (
            [[exact(v) for v in r] for r in certificate[w]] for w in ("free", "inputs", "reports")
        )
        offset += sum(f * g for r, s in zip(free, goal) for f, g in zip(r, s))
        for x in items:
            for y in range(k):
                reduced[x][y] -= sum(f * h for f, h in zip(free[x], query[y]))
        account.claimed("the equalities are the design's")
    bound = offset + sum(map(min, reduced))
    account.proved(
        f"no private channel below {result['lower_bound']!r}", exact(result["lower_bound"]) <= bound
    )


def space_distances(space):
    if space["matrix"] is not None:
        return space["matrix"]
    if space["kind"] in ("grid", "euclidean") and space["points"] is not None:
        return [[math.dist(p, q) for q in space["points"]] for p in space["points"]]
    return None


# Lattice noise -----------------------------------------------------------------------------------------------------


def lattice_noise(result, account):
    design, certificate = result["design"], result["certificate"]
    law, privacy, loss = result["mechanism"], design["privacy"], design["loss"]
    for key in ("privacy", "sensitivity", "loss"):
        account.proved(f"the certificate's {key} is the design's", certificate[key] == design[key])
    account.proved("the certificate's law is the mechanism's", certificate["law"] == law)
    powers = {"absolute": (1, 0), "squared": (0, 1)}.get(loss if isinstance(loss, str) else None)
    if powers is None:
        raise NotCovered("losses other than absolute and squared")
    delta, (low, high) = exact(privacy.get("delta", 0)), exp_bounds(exact(privacy["epsilon"]))
    n, cells, decay, spike = law["cells_per_shift"], law["weights"], law["decay"], law["spike"]
    width, start, sensitivity = exact(law["width"]), exact(law["start"]), exact(design["sensitivity"])
    if decay:
        raise NotCovered("noise with infinite tails")
    if min(cells) < 0 or spike < 0 or not 0 <= decay < 1:
        raise Refused("negative weights")
    total = sum(cells) + spike
    account.proved("shifts up to the sensitivity", n * width >= sensitivity)

    def excess(k):
        moved = [cells[i + k] if 0 <= i + k < len(cells) else 0 for i in range(len(cells))]
        return sum(max(a - low * b, 0) for a, b in zip(cells, moved)) + spike

    account.proved(
        f"delta at most {float(delta)!r}",
        max(map(excess, [*range(-n, 0), *range(1, n + 1)])) <= delta * total,
    )

    def mean_cost(a, b):  # of a uniform law on [a, b]
        absolute = (b * abs(b) - a * abs(a)) / 2 / (b - a)
        return powers[0] * absolute + powers[1] * (a * a + a * b + b * b) / 3

    cost = sum(w * mean_cost(start + i * width, start + (i + 1) * width) for i, w in enumerate(cells))
    if spike:
        cost += spike * mean_cost(-exact(law["spike_width"]) / 2, exact(law["spike_width"]) / 2)
    account.proved(f"the value is at most {result['value']!r}", cost <= certificate["value"] * total)
    account.recomputed("the value shown is", result["value"], float(cost / total))
    bound = lattice_bound(certificate, powers, delta, high, sensitivity)
    account.proved("the lower bound follows from the multipliers", certificate["lower_bound"] <= bound)
    account.recomputed("the lower bound shown is", result["lower_bound"], float(certificate["lower_bound"]))


def lattice_bound(certificate, powers, delta, growth, sensitivity):
    """Weak duality: min_j (c_j + Σ_s ψ_s(j) − e^ε ψ_s(j − s)) − δ Σ_s μ_s, averaged with the mirror image if asked."""
    n, step = certificate["cells"], sensitivity / certificate["cells"]
    half = (len(certificate["psi"][0]) - 1) // 2 if certificate["psi"] else 0
    reach = half + n + 1
    gain = {j: Fraction(0) for j in range(-reach, reach + 1)}
    spent = Fraction(0)
    for s, row, cap in zip(certificate["shifts"], certificate["psi"], certificate["totals"]):
        row = [max(exact(p), 0) for p in row]
        spent += max([exact(cap), *row])
        for j, p in zip(range(-half, half + 1), row):
            gain[j] += p
            gain[j + s] -= growth * p
    if certificate["mirrored"]:
        gain = {j: (g + gain[-j]) / 2 for j, g in gain.items()}

    def cost(j):
        return powers[0] * abs(j) * step + powers[1] * ((j * step) ** 2 - step**2 / 4)

    return min(cost(j) + g for j, g in gain.items()) - delta * spent


# Allocations -------------------------------------------------------------------------------------------------------


def allocation(result, account):
    design, noise = result["design"], result["mechanism"]["noise"]
    scales, lam, privacy, p = (
        result["mechanism"]["scales"],
        design["sensitivities"],
        design["privacy"],
        design["loss"],
    )
    if type(p) not in (int, float) or noise not in ("laplace", "gaussian"):
        raise NotCovered("allocations of other noise or losses")
    power = 1 if noise == "laplace" else 2
    if any(s <= 0 < l for s, l in zip(scales, lam)):
        account.proved("every sensitive coordinate has noise", False)
        return
    stated = result["certificate"]
    account.proved("the certificate's question is the design", stated["question"] == design)
    account.proved("the certificate's scales are the mechanism's", stated["scales"] == scales)
    account.shown(result, "value", "lower_bound")
    account.proved("the noise is the design's", noise == design["noise"] and len(scales) == len(lam))
    spent = sum((exact(l) / exact(s)) ** power for l, s in zip(lam, scales) if l)
    if privacy[""] == "pure-dp" and noise == "laplace":
        budget = exact(privacy["epsilon"])
        account.proved(f"privacy loss at most {privacy['epsilon']!r}", spent <= budget)
    elif privacy[""] == "zcdp" and noise == "gaussian":
        budget = 2 * exact(privacy["rho"])
        account.proved(f"rho at most {privacy['rho']!r}", spent <= budget)
    elif privacy[""] == "approximate-dp" and noise == "gaussian":
        epsilon, mu = privacy["epsilon"], math.sqrt(spent)
        tail = [math.erfc(-z / math.sqrt(2)) / 2 for z in (mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu)]
        account.recomputed("all of delta is spent:", privacy["delta"], tail[0] - math.exp(epsilon) * tail[1])
        budget = spent
    else:
        raise NotCovered(f"{noise} noise under {privacy['']}")
    lower, upper = design["lower"], design["upper"]
    for name, limits, sign in (("lower", lower, 1), ("upper", upper, -1)):
        if limits is not None:
            limits = limits if isinstance(limits, list) else [limits] * len(scales)
            account.proved(
                f"{name} limits are kept", all(sign * (s - t) >= 0 for s, t in zip(scales, limits))
            )
    weights = design["weights"] or [1.0] * len(lam)
    moment = (
        math.gamma(p + 1)
        if noise == "laplace"
        else 2 ** (p / 2) * math.gamma((p + 1) / 2) / math.sqrt(math.pi)
    )
    value = math.fsum(w * moment * s**p for w, s in zip(weights, scales))
    account.recomputed("the value is", result["value"], value)
    if lower is not None or upper is not None or design["groups"] is not None:
        account.claimed(f"no scales do better than {result['lower_bound']:.12g}")
        return

    def dual(y):  # min over each scale s of w m s^p + y (λ/s)^power, less y times the budget
        terms = []
        for w, l in zip(weights, lam):
            if l and w:
                s = (power * y * l**power / (p * w * moment)) ** (1 / (p + power))
                terms.append(w * moment * s**p + y * (l / s) ** power)
        return math.fsum(terms) - y * float(budget)

    # At the optimum y·power·budget = p·value; every y ≥ 0 gives a bound.
    account.recomputed(
        "no scales do better than", result["lower_bound"], dual(p * value / (power * float(budget)))
    )


# ------------------------------------------------------------------------------------------------------------------

CHECKS = {
    "quantizer-result": quantizer,
    "optimal-quantizer-result": quantizer,
    "optm-search-result": quantizer,
    "metric-quantizer-result": quantizer,
    "channel-result": channel,
    "optimal-noise-result": lattice_noise,
    "allocation-result": allocation,
}


def verify(text):
    """The account of a file; raises NotCovered, or Refused for what cannot be a result."""
    try:
        result = read(text)
        check = CHECKS.get(result[""])
        if check is None:
            raise NotCovered(f"results of kind {result['']}")
        account = Account()
        account.proved("a certificate is there", result["certificate"] is not None)
        if result["certificate"] is not None:
            check(result, account)
        optimal = result["solver_report"]["status"] == "optimal"
        if optimal and (result["lower_bound"] is None or not math.isfinite(result["lower_bound"])):
            account.proved("optimal: with a lower bound", False)
    except (NotCovered, Refused):
        raise
    except Exception as error:
        raise Refused(f"malformed: {type(error).__name__}: {error}"[:300]) from None
    return account


def main(words):
    if len(words) != 1:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 1
    try:
        with open(words[0], encoding="utf-8") as file:
            account = verify(file.read(2**26 + 1))
    except NotCovered as error:
        print(f"not covered: {error}")
        return 2
    except (OSError, ValueError, Refused) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for claim, how, holds in account.rows:
        print(f"{'ok ' if holds else 'NO '} {how:10} {claim}")
    return 0 if all(holds for *_, holds in account.rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
