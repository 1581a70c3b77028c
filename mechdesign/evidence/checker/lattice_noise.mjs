// Optimal noise for one number: privacy and cost of a law that is constant on cells.
//
// The law has integer weights on cells of one width; a shift of the sensitivity is n cells. δ(d) = ∫ [f(t) − e^ε f(t + d)]₊ dt is
// affine in the shift d between whole numbers of cells, so that the shifts ±1, …, ±n are all that is checked. With tails the first and
// the last n cells are repeated outwards for ever, times r, r², …: so are the sums over them.

import { NotCovered, Refused } from "./errors.mjs";
import { latticeBound, staircaseBound } from "./lattice_bound.mjs";
import { total } from "./quantizer_laws.mjs";
import { bitLength, double, Fraction, larger, magnitude, maximum, ONE, rational, sum, TWO, ZERO } from "./rational.mjs";
import { accumulated, difference, expBounds, optional, pointsOf } from "./reading.mjs";
import { shown } from "./words.mjs";

const THIRD = new Fraction(1n, 3n);

export function latticeNoise(result, account) {
  const { design, mechanism: law } = result;
  const proofs = Object.fromEntries(result.proofs.map((proof) => [proof[""], proof]));
  const { privacy, loss } = design;
  if (!["absolute", "squared"].includes(loss)) throw new NotCovered("a callable loss");
  if (["cell-product", "additive-noise"].includes(law[""])) throw new NotCovered("noise for several numbers or of a named family, in a page");
  if (design.integer) throw new NotCovered("noise on the whole numbers, in a page");
  if (law[""] !== "cell-noise") throw new Refused("a mechanism that is no noise of this kind");
  if (design.dimension !== 1n || (design.l0 ?? 1n) !== 1n) throw new Refused("noise of one number for several");
  const bounds = ["lattice-dual", "staircase-dual"].filter((kind) => kind in proofs);
  const ofLaw = Object.keys(proofs).length === 2 && result.proofs.length === 2 && "cell-law-proof" in proofs;
  if (bounds.length !== 1 || !ofLaw) throw new NotCovered("evidence other than one proof of the law and one of the lower bound");
  const stated = proofs[bounds[0]];
  const sensitivity = rational(design.sensitivity);
  const cells = cellsOf(law, stated);
  const { n, mass } = cells;
  const [count, outer] = [law.weights.length, cells.first + cells.final];
  account.proved("shifts up to the sensitivity", sensitivity.atMost(rational(law.width).times(new Fraction(n))));
  for (const [epsilon, allowed] of pointsOf(privacy)) {
    const [low] = expBounds(rational(epsilon));
    const bits = bitLength(low.n) + bitLength(law.decay.d ** 2n);
    if (law.spans.length) account.takes(16 * (count + 2 * outer) * (count + 4 * outer), bits);
    else account.takes(2 * Number(n) * (count + 4 * Number(n)), bits);
    const excess = law.spans.length ? spansExcess(cells, low) : largestOfShifts(cells, low);
    const found = excess.plus(new Fraction(law.spike)).over(mass);
    const delta = rational(allowed);
    const claim = `delta at most ${shown(allowed)} at epsilon = ${shown(epsilon)}`;
    account.proved(claim, found.atMost(delta), difference(found, delta));
  }
  const value = rational(result.value);
  const spent = costOf(law, cells, loss).over(mass);
  account.proved(`the value is at most ${shown(result.value)}`, spent.atMost(value), difference(spent, value));
  account.takes(100 * Number(optional(stated, "periods", 0n)) + 20 * Number(optional(stated, "cells", 0n)));
  const proof = bounds[0] === "staircase-dual" ? staircaseBound : latticeBound;
  const inOrder = (p, q) => double(p[0]) - double(q[0]) || double(p[1]) - double(q[1]);
  const every = [...pointsOf(privacy)].sort(inOrder);
  const binding = every.filter(([, d]) => double(d) < 1);
  const asked = binding.length ? binding : every;
  const points = asked.map(([e, d]) => [expBounds(rational(e))[1], rational(d)]);
  const bound = larger(proof(stated, loss, points, sensitivity), ZERO);
  const claimed = rational(result.lower_bound);
  account.proved(`no additive noise for a real-valued query costs less than ${shown(result.lower_bound)}`, claimed.atMost(bound), difference(claimed, bound));
}

// The cells of a law, checked to be ones: spans and their ends, the number n of a shift, and the sums over repetitions.
function cellsOf(law, stated) {
  const { weights, decay: r, spike, cells_per_shift: n } = law;
  const wide = law.spans.length > 0;
  const spans = wide ? law.spans : weights.map(() => 1n);
  if (n > (wide ? 1n << 29n : BigInt(weights.length + 100)) || optional(stated, "cells", 1n) > 100_000n)
    throw new Refused("more shifts than the law has use for");
  const ends = accumulated(spans).slice(1);
  const last = ends[ends.length - 1];
  if (!weights.length || n < 1n) throw new Refused("no cells, or none to a shift");
  const tails = r.sign !== 0;
  const negative = weights.some((w) => w < 0n) || spike < 0n || r.sign < 0 || ONE.atMost(r);
  if (negative || (tails && last < 2n * n) || spans.length !== weights.length) throw new Refused("weights that are none");
  const torn = spans.some((v) => v < 1n || v & (v - 1n)) || (tails && !(ends.includes(n) && ends.includes(last - n)));
  if (torn || (wide && spans.length > 2000)) throw new Refused("spans that are not powers of two, or do not fit the tails");
  const first = tails ? ends.filter((e) => e <= n).length : 0; // so many cells are repeated on the left
  const final = tails ? ends.filter((e) => e > last - n).length : 0; // and on the right
  const rest = ONE.minus(r);
  const zero = r.over(rest);
  const repeated = total(weights.slice(0, first)) + total(weights.slice(weights.length - final));
  const mass = new Fraction(total(weights) + spike).plus(zero.times(new Fraction(repeated)));
  return { weights, spans, ends, n, r, first, final, zero, mass, last };
}

// The largest Σ [p_j − e^ε p_{j+k}]₊ over whole shifts k, in the weights' unit.
function largestOfShifts({ weights, n: shifts, r, zero }, { n: up, d: down }) {
  const n = Number(shifts);
  const scale = r.d * r.d;
  const factors = [r.n * r.n, r.n * r.d];
  const side = (cells, order) => (r.sign ? order.flatMap((f) => cells.map((w) => w * f)) : Array(2 * n).fill(0n));
  const line = [
    ...side(weights.slice(0, n), factors),
    ...weights.map((w) => w * scale),
    ...side(weights.slice(-n), [...factors].reverse()),
  ];
  const [raised, lowered] = [line.map((w) => w * down), line.map((w) => w * up)];
  const inside = line.length - 2 * n;
  const over = (k) =>
    Array.from({ length: inside }, (_, i) => {
      const excess = raised[i + n] - (lowered[i + n + k] ?? 0n);
      return excess > 0n ? excess : 0n;
    });
  let largest = ZERO;
  for (let k = -n; k <= n; k++) {
    if (!k) continue;
    const excess = over(k);
    const outside = total(excess.slice(0, n)) + total(excess.slice(-n));
    largest = larger(largest, new Fraction(total(excess)).plus(new Fraction(outside).times(zero)));
  }
  return largest.over(new Fraction(down * scale));
}

// The largest ∫[f(t) − e^ε f(t + d)]₊ over real shifts |d| ≤ n, in the weights' unit. Each pair of spans adds a constant times its
// overlap, whose slope in d changes where ends meet.
function spansExcess({ weights, spans, ends, n, r, last }, { n: up, d: down }) {
  const widest = spans.reduce(maximum);
  const [p, q] = [r.n, r.d];
  const heights = weights.map((w, k) => [ends[k] - spans[k], ends[k], (w * widest * q * q) / spans[k]]);
  let line = [[-n, 0n, 0n], ...heights, [last, last + n, 0n]];
  const here = heights.map((run) => [...run, q - p]);
  if (p) {
    const left = heights.filter((run) => run[1] <= n);
    const right = heights.filter((run) => run[0] >= last - n);
    const moved = (runs, k) =>
      runs.map(([a, b, h]) => [a + k * n, b + k * n, magnitude(k) === 2n ? (h * p * p) / (q * q) : (h * p) / q]);
    const [nearLeft, nearRight] = [moved(left, -1n), moved(right, 1n)];
    line = [...moved(left, -2n), ...nearLeft, ...heights, ...nearRight, ...moved(right, 2n)];
    here.push(...[...nearLeft, ...nearRight].map((run) => [...run, q]));
  }
  const merged = line.slice(0, 1);
  for (const [a, b, h] of line.slice(1)) {
    const before = merged[merged.length - 1];
    if (before[2] === h) merged[merged.length - 1] = [before[0], b, h]; // neighbours of one height are one
    else merged.push([a, b, h]);
  }
  const bends = new Map([[-n, 0n], [n, 0n]]);
  for (const [a, b, h, times] of here) {
    const raised = h * down;
    for (const [c, e, other] of merged) {
      const over = (raised - up * other) * times;
      if (over <= 0n || c - b >= n || e - a <= -n) continue;
      for (const [place, change] of [[c - b, over], [c - a, -over], [e - b, -over], [e - a, over]])
        bends.set(place, (bends.get(place) ?? 0n) + change);
    }
  }
  const places = [...bends.keys()].sort((x, y) => (x < y ? -1 : 1));
  let [most, value, slope] = [0n, 0n, 0n];
  for (let k = 0; k + 1 < places.length; k++) {
    slope += bends.get(places[k]);
    value += slope * (places[k + 1] - places[k]);
    if (magnitude(places[k + 1]) <= n) most = maximum(most, value);
  }
  return new Fraction(most, widest * q * q * down * (q - p));
}

// E|T| or E T², in the weights' unit.
function costOf(law, { weights, spans, ends, n, r, first, final, zero }, loss) {
  const [start, width] = [rational(law.start), rational(law.width)];
  const absolute = loss === "absolute";
  const cost = (a, b) =>
    absolute
      ? b.times(b.absolute()).minus(a.times(a.absolute())).over(TWO).over(b.minus(a)).reduced()
      : a.times(a).plus(a.times(b)).plus(b.times(b)).times(THIRD);
  const at = (place) => start.plus(width.times(new Fraction(place)));
  const sides = ends.map((e, k) => [at(e - spans[k]).reduced(), at(e).reduced()]);
  const terms = weights.map((w, k) => cost(...sides[k]).times(new Fraction(w)));
  if (r.sign) {
    if (sides[first - 1][1].sign > 0 || sides[sides.length - final][0].sign < 0) throw new Refused("tails that reach across zero");
    const rest = ONE.minus(r);
    const one = r.over(rest.times(rest));
    const two = r.times(ONE.plus(r)).over(rest.times(rest).times(rest));
    const step = width.times(new Fraction(n));
    const repeated = (a, b) => {
      const centre = a.plus(b).absolute().over(TWO);
      if (absolute) return centre.times(zero).plus(step.times(one));
      return cost(a, b).times(zero).plus(TWO.times(centre).times(step).times(one)).plus(step.times(step).times(two));
    };
    weights.forEach((w, k) => {
      const times = (k < first ? 1n : 0n) + (k >= weights.length - final ? 1n : 0n);
      if (times) terms.push(repeated(...sides[k]).times(new Fraction(times * w)).reduced());
    });
  }
  if (law.spike) {
    const half = rational(law.spike_width).over(TWO);
    terms.push(cost(half.negative(), half).times(new Fraction(law.spike)));
  }
  return sum(terms);
}
