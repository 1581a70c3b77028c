// Quantizers: the lower bound, by weak duality; docs/theory says why it holds for every mechanism with these outputs.

import { Refused } from "./errors.mjs";
import {
  ceilDivide, floorDivide, Fraction, larger, lcm, ONE, rational, smallest, sum, TWO, ZERO,
} from "./rational.mjs";
import { accumulated, common, countAtMost, pairwise } from "./reading.mjs";

const WEIGHT = new Fraction(1n << 160n); // weights of the prior are rounded to multiples of 1/2¹⁶⁰

// Lines under the loss on pieces of the inputs, averaged: a constant plus G · a for the floors a, minimised over a.
export function dualBound(duals, bins, ends, bias, rho, loss, moments, account) {
  const origin = rational(duals.origin);
  const price = rational(duals.cap_price);
  const outputs = duals.outputs !== null && duals.outputs.length ? duals.outputs.map(rational) : bins;
  const between = duals.between;
  const [lowest, highest] = [outputs[0], outputs[outputs.length - 1]];
  const among = (b) => (between ? lowest.atMost(b) && b.atMost(highest) : outputs.some((x) => x.equals(b)));
  if (!bins.every(among) || !pairwise(outputs).every(([a, b]) => a.below(b))) throw new Refused("a lower bound for other outputs");
  const table = duals.pieces.map((piece) => piece.map(rational));
  account.takes(8 * table.length * outputs.length);
  const prices = duals.multipliers.map((list) => list.map(rational));
  const [low, high] = [ends[0].minus(bias).minus(origin), ends[1].plus(bias).minus(origin)];
  const ordered = ([u, v, share]) => share.sign >= 0 && u.atMost(v) && (moments !== null || (low.atMost(u) && u.atMost(high)));
  const sized = prices.length === 2 && prices.every((list) => list.length === outputs.length && list.every((p) => p.sign >= 0));
  if (!table.every((piece) => piece.length === 7 && ordered(piece)) || !sized || price.sign < 0)
    throw new Refused("multipliers that are none");

  const first = rational(loss.absolute);
  const second = rational(loss.squared).plus(price).reduced();
  const growth = new Fraction(rho.times(new Fraction(1n << 64n)).ceil(), 1n << 64n);
  const { unit, places } = common(outputs.map((b) => b.minus(origin)));
  const gradient = places.map(() => 0n);
  const dents = dented(places, unit, second, between);
  const known = knownMoments(table, origin, moments);
  const terms = [];
  const changes = [];
  const used = [];
  for (let [u, v, share, L, L1, M, M1] of table) {
    let masses;
    if (u.below(v)) {
      masses = known.get(spanName(u, v));
      changes.push([u, share], [v, share.negative()]);
    } else {
      // a point mass: u is its rounded distance from the origin; or, for the worst case, a weight
      const here = origin.plus(u);
      const [x, mass] = moments === null ? [here, [ONE, ONE]] : nearest(moments.atoms, here);
      u = v = x.minus(origin).reduced();
      masses = [mass, [ZERO, ZERO], [ZERO, ZERO]];
      used.push([moments === null ? ZERO : u, share]);
    }
    masses = masses.map((pair) => pair.map((mass) => mass.times(share)));
    // ∫ (λ + μy − b|μ|) dF with λ = L + w₂y², μ = M − 2w₂y; |μ| lies below its chord.
    const [dL, dM, w] = [L1.minus(L), M1.minus(M), v.minus(u)];
    const steep = M.minus(TWO.times(second).times(u)).absolute();
    const steeper = M1.minus(TWO.times(second).times(v)).absolute();
    const parts = [
      L.plus(M.times(u)).minus(second.times(u).times(u)).minus(bias.times(steep)),
      dL.plus(dM.times(u)).plus(M.times(w)).minus(TWO.times(second).times(u).times(w)).minus(bias.times(steeper.minus(steep))),
      dM.times(w).minus(second.times(w).times(w)),
    ];
    parts.forEach((part, k) => terms.push(part.times(masses[k][part.sign <= 0 ? 1 : 0])));

    // min(c, ρc) of the reduced cost c is concave in y: above its chord, weighted ∫ (1 − t) dF and ∫ t dF.
    const [[n0, n1], [t0, t1]] = masses;
    const turn = signTurn(places, u, v, unit, between);
    const chords = [[u, L, M, n0.minus(t1), n1.minus(t0)], [v, L1, M1, t0, t1]];
    for (const [y, level, tilt, least, most] of chords) {
      const up = larger(least, ZERO).times(WEIGHT).floor();
      const down = most.times(growth).times(WEIGHT).ceil();
      if (down <= 0n) continue;
      const scale = lcm([first.d * y.d, level.d, tilt.d, second.d]);
      const whole = (x) => x.n * (scale / x.d);
      for (const [sign, from, to] of [[first.negative(), 0, turn], [first, turn, places.length]]) {
        // the reduced cost times scale · unit², at the output origin + b/unit
        const slope = (whole(sign) - whole(tilt)) * unit;
        const rest = (-whole(sign.times(y)) - whole(level)) * unit * unit;
        const curve = whole(second);
        const full = scale * unit * unit;
        for (let k = from; k < to; k++) {
          const b = places[k];
          let cost = (slope + curve * b) * b + rest;
          if (dents) cost -= ceilDivide(dents[k].n * full, dents[k].d);
          gradient[k] += floorDivide(cost * (cost > 0n ? up : down), full);
        }
      }
    }
  }
  if (!once(changes) || !once(used.map(([u, share]) => [u, share]), true))
    throw new Refused("a part of the prior is counted twice");

  // G · a ≥ ν · right sides + min_k (G − Cᵀν)_k {1/ρ or 1}, for floors that reach all means of the range.
  let least = gradient.map((g) => new Fraction(g, WEIGHT.n));
  for (const [end, side, list] of [[ends[1], 1, prices[0]], [ends[0], -1, prices[1]]]) {
    const { unit: priceUnit, places: nu } = common(list);
    const mass = accumulated(nu);
    const sums = accumulated(nu.map((p, k) => p * places[k]));
    const [allMass, allSums] = [mass[nu.length], sums[nu.length]];
    const reach = end.minus(origin).times(new Fraction(allMass, priceUnit)).minus(new Fraction(allSums, priceUnit * unit));
    terms.push(side > 0 ? reach : reach.negative());
    least = least.map((g, k) => {
      const left = new Fraction(places[k] * mass[k + 1] - sums[k + 1], priceUnit * unit);
      const right = new Fraction(allSums - sums[k + 1] - places[k] * (allMass - mass[k + 1]), priceUnit * unit);
      const [here, there] = side > 0 ? [left, right] : [right, left];
      return g.minus(growth.times(here).minus(there));
    });
  }
  const smallestCost = smallest(least);
  return sum([...terms, smallestCost.sign > 0 ? smallestCost.over(growth) : smallestCost]);
}

// The point mass nearest to an input, with its bounds.
function nearest(atoms, x) {
  const k = countAtMost(atoms, x, ([place], y) => place.below(y));
  const near = atoms.slice(Math.max(k - 1, 0), k + 1);
  if (!near.length) return [x, [ZERO, ZERO]];
  const far = ([place]) => place.minus(x).absolute();
  return near.length > 1 && far(near[1]).below(far(near[0])) ? near[1] : near[0];
}

// In between outputs the reduced cost is convex: it lies below the chord by at most w₂ (step/2)².
function dented(places, unit, second, between) {
  if (!between) return null;
  const steps = [0n, ...pairwise(places).map(([a, b]) => b - a), 0n];
  const wide = (k) => (steps[k] > steps[k + 1] ? steps[k] : steps[k + 1]);
  return places.map((_, k) => second.times(new Fraction(wide(k) * wide(k), 4n * unit * unit)));
}

const spanName = (u, v) => [u.n, u.d, v.n, v.d].join(" "); // of fractions in lowest terms

function knownMoments(table, origin, moments) {
  const spans = new Map();
  for (const [u, v] of table) if (u.below(v)) spans.set(spanName(u, v), [u, v]);
  const sorted = [...spans].sort(([, a], [, b]) => a[0].compare(b[0]) || a[1].compare(b[1]));
  if (!sorted.length && moments === null) return spans;
  if (moments === null) throw new Refused("multipliers of stretches where no prior is");
  const bounds = moments.over(sorted.map(([, [u, v]]) => [origin.plus(u), origin.plus(v)]), "spans");
  return new Map(sorted.map(([name], k) => [name, bounds[k]]));
}

// Where |b − x| ≥ ±(b − x) turns its sign: at the piece's middle, or with any output between two at one on its side.
function signTurn(places, u, v, unit, between) {
  const at = (x) => x.times(new Fraction(unit));
  const turn = countAtMost(places, at(u.plus(v)).over(TWO).floor());
  if (!between) return turn;
  const left = countAtMost(places, at(u).floor()) - 1;
  const right = countAtMost(places, at(v).ceil() - 1n);
  const nearer = () => at(u.plus(v)).below(new Fraction(places[left] + places[right]));
  return right === places.length || (left >= 0 && nearer()) ? Math.max(left, 0) : right + 1;
}

// Whether the shares that begin and end at these places are nowhere more than 1 together; apart: whether those of no place are.
function once(changes, apart = false) {
  const sorted = changes.sort(([u, a], [v, b]) => u.compare(v) || a.compare(b));
  let total = ZERO;
  let last = null;
  for (const [u, share] of sorted) {
    if (apart && last && !last.equals(u)) total = ZERO;
    total = total.plus(share).reduced();
    if (ONE.below(total)) return false;
    last = u;
  }
  return true;
}
