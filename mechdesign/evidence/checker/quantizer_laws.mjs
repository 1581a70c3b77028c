// The laws of quantizers, each as rows that are affine in the input between knots.
//
// Three kinds of law stand in files. A rational table states the rows at the start and at the end of every segment between two
// knots. A selection law draws an output on each side of the input and rounds between the two without bias. A block fill adds to
// floors a what a block of length 1 − Σa covers of the weights (ρ − 1)a laid side by side, its place being such that the row's
// mean is the input.
//
// Theorem: for each of them every probability p(x, i) is an affine function of the input x between neighbouring knots. So what is
// linear in a row, its sum, its mean and every p(x, i) ≤ c p(x', i), holds for all inputs once it holds at both ends of every
// segment.

import { Refused } from "./errors.mjs";
import { bitLength, exact, Fraction, larger, lcm, magnitude, maximum, minimum, smaller, sum } from "./rational.mjs";
import { accumulated, common, countAtMost, pairwise } from "./reading.mjs";

export const total = (list) => list.reduce((a, b) => a + b, 0n);

// Knots, and a row at the start and one at the end of each segment between them: integers over a common denominator.
export function segmentsOf(law, account) {
  if (law === null || !Object.hasOwn(LAWS, law[""])) throw new Refused("no exact law");
  const found = LAWS[law[""]](law, account);
  if (found.knots.length < 2 || found.rows.length !== 2 * found.knots.length - 2)
    throw new Refused("segments that are not those between the knots");
  return found;
}

const sameRow = (p, q) => p === q || (p.length === q.length && p.every((n, k) => n === q[k]));

// Whether each segment begins with the row that the one before ends with.
export const continuous = ({ rows }) =>
  rows.every((row, k) => k === 0 || k % 2 === 1 || sameRow(rows[k - 1], row));

// The rows at the knots of a continuous law.
export const atKnots = ({ rows }) => [rows[0], ...rows.filter((_, k) => k % 2 === 1)];

function rationalTable(law, account) {
  if (law.starts.length !== law.ends.length) throw new Refused("a table with more starts than ends, or fewer");
  return overCommon(law.knots.map(exact), law.starts.flatMap((start, k) => [start, law.ends[k]]), account);
}

function overCommon(knots, rows, account) {
  const entries = rows.flat().map(exact);
  const widest = entries.reduce((most, p) => Math.max(most, bitLength(p.d)), 0);
  const { unit, places } = common(entries, (denominator) => {
    account.divides(1, widest);
    account.takes(1, bitLength(denominator));
  });
  account.divides(entries.length, widest);
  account.takes(entries.length, bitLength(unit));
  let at = 0;
  return { knots, rows: rows.map((row) => places.slice(at, (at += row.length))), common: unit };
}

// For x in [B_j, B_{j+1}) a left output l ≤ j and a right one r > j by their weights; then l with probability
// (B_r − x)/(B_r − B_l), else r.
function selectionLaw(law, account) {
  const bins = law.bins.map(exact);
  const [lower, upper] = [exact(law.lower), exact(law.upper)];
  const m = bins.length;
  for (const side of [law.left, law.right]) {
    if (side.length !== m - 1 || side.some((weights, k) => weights.length !== k + 1))
      throw new Refused("selection weights of other lengths than 1, 2, …");
    if (side.some((weights) => weights.some((w) => w < 0n) || total(weights) <= 0n))
      throw new Refused("selection weights must not be negative");
  }
  const knots = [lower, ...bins.filter((b) => lower.below(b) && b.below(upper)), upper];
  const bits = m * Math.max(...bins.map((b) => bitLength(magnitude(b.n) * b.d))); // of a sum of 1/(r − l)
  account.divides(knots.length * m * (8 + m / 8), Math.min(bits, 60 * m));
  const rows = [];
  for (const [start, end] of pairwise(knots)) {
    const j = Math.min(bins.filter((b) => b.atMost(start)).length, m - 1);
    if (j < 1) throw new Refused("inputs below the least output");
    const [left, right] = [law.left[j - 1], [...law.right[m - j - 1]].reverse()];
    const [totalLeft, totalRight] = [new Fraction(total(left)), new Fraction(total(right))];
    // Of a left output l: Σ_r w_r (r − x)/(r − l) = Σ_r w_r + (l − x) Σ_r w_r/(r − l); of a right one its mirror image.
    const share = (w, distance) => new Fraction(w).over(distance);
    const shares = bins.map((b, k) =>
      (k < j
        ? sum(right.map((w, i) => share(w, bins[j + i].minus(b))))
        : sum(left.map((w, i) => share(w, b.minus(bins[i])))).negative()
      ).reduced(),
    );
    for (const x of [start, end]) {
      const probability = (b, k) => {
        const [w, others] = k < j ? [left[k], totalRight] : [right[k - j], totalLeft];
        return new Fraction(w).times(others.plus(b.minus(x).times(shares[k]))).over(totalLeft.times(totalRight)).reduced();
      };
      rows.push(bins.map(probability));
    }
  }
  return overCommon(knots, rows, account);
}

// Knots are where an end of the block passes the border of a weight, and the ends of the inputs.
function blockFillLaw(law, account) {
  const [lower, upper] = [exact(law.lower), exact(law.upper)];
  const rho = exact(law.rho).reduced();
  const { unit: floorUnit, places: floors } = common(law.floors.map(exact));
  const { unit: binUnit, places: bins } = common(law.bins.map(exact));
  const unit = floorUnit * rho.d;
  account.takes(8 * bins.length ** 2, bitLength(unit));
  const base = floors.map((a) => a * rho.d);
  const widths = floors.map((a, k) => a * rho.n - base[k]);
  const edges = accumulated(widths);
  const block = unit - total(base);
  const last = edges[edges.length - 1] - block;
  if (floors.length !== bins.length || block < 0n || last < 0n || floors.some((a) => a < 0n))
    throw new Refused("floors that no block fills");
  const least = total(base.map((a, k) => a * bins[k]));
  const moments = accumulated(widths.map((width, k) => width * bins[k]));
  const momentUpTo = (place) => {
    const k = Math.min(countAtMost(edges, place), bins.length) - 1;
    return moments[k] + (place - edges[k]) * bins[k];
  };

  const inside = new Set(edges.flatMap((edge) => [edge, edge - block]).filter((place) => place > 0n && place < last));
  const places = [0n, ...[...inside].sort((a, b) => (a < b ? -1 : 1)), last];
  const mean = (place) => new Fraction(least + momentUpTo(place + block) - momentUpTo(place), unit * binUnit);
  const means = places.map(mean);
  const knots = []; // each with the place of the block there
  const nearest = upper.minus(lower).over(new Fraction(1n << 40n)); // closer knots are one
  const farEnough = (x) => nearest.atMost(x.minus(knots[knots.length - 1][0]));
  for (let k = 0; k + 1 < places.length; k++) {
    const [s, t, here, following] = [places[k], places[k + 1], means[k], means[k + 1]];
    if (!here.below(following) || following.atMost(lower) || upper.atMost(here)) continue;
    for (const x of [larger(here, lower), smaller(following, upper)]) {
      if (x.equals(upper) && knots.length > 1 && !farEnough(x)) knots.pop();
      const place = () => new Fraction(s).plus(new Fraction(t - s).times(x.minus(here).over(following.minus(here))));
      if (!knots.length || farEnough(x)) knots.push([x.reduced(), place().reduced()]);
    }
  }
  const scale = lcm(knots.map(([, place]) => place.d));
  account.takes(4 * knots.length * bins.length, bitLength(unit) + bitLength(scale));
  const borders = edges.map((edge) => edge * scale);
  const raised = base.map((a) => a * scale);
  const rows = knots.map(([, { n, d }]) => {
    const start = n * (scale / d);
    const stop = start + block * scale;
    return raised.map((a, k) => {
      const covered = minimum(stop, borders[k + 1]) - maximum(start, borders[k]);
      return covered > 0n ? a + covered : a;
    });
  });
  return { knots: knots.map(([x]) => x), rows: pairwise(rows).flat(), common: unit * scale };
}

const LAWS = { "block-fill-law": blockFillLaw, "selection-law": selectionLaw, "rational-table": rationalTable };
