// Quantizers: the expected or the worst loss of a law, from above, and the claims of value, cap and lower bound.
//
// Theorem: for the loss w₁|t| + w₂t² the expected loss at an input x,
//
//     E ℓ(B − x) = w₁ (E B − x − 2 E[B; left] + 2x P[left]) + w₂ (E B² − 2x E B + x²),
//
// left being the outputs up to x, is a quadratic in x between neighbouring knots and outputs, as the row is affine there. So the
// prior's moments of order 0, 1, 2 on these cells give its mean (prior_moments.mjs), and ends and peaks of the quadratics its
// largest value.

import { Refused } from "./errors.mjs";
import { Moments, rationalPrior } from "./prior_moments.mjs";
import { dualBound } from "./quantizer_bound.mjs";
import { bitLength, double, Fraction, larger, largest, ONE, rational, sum, TWO, ZERO } from "./rational.mjs";
import { accumulated, common, countAtMost, isObject, NEAR, optional, pairwise } from "./reading.mjs";
import { general, shown } from "./words.mjs";

const ENCLOSED = ["norm", "truncnorm", "beta"]; // laws whose stated moments are proved bounds; those of others are floats
const FOUR = new Fraction(4n);

// Cells [u, v] between knots and outputs, and the expected loss there as a + bt + ct², t from 0 to 1.
function lossCells({ knots, rows, common: denominator, bins }, loss, account) {
  const [first, second] = [rational(loss.absolute), rational(loss.squared)];
  if (first.sign < 0 || second.sign < 0) throw new Refused("a loss that falls with the error");
  const { unit, places } = common(bins);
  const entries = rows.reduce((count, row) => count + row.length, 0);
  account.takes(4 * entries, bitLength(denominator) + 2 * bitLength(unit));
  const units = [denominator, denominator * unit, denominator * unit, denominator * unit * unit];
  const sums = new Map();
  for (const row of new Set(rows)) {
    const moments = row.slice(0, places.length).map((p, k) => p * places[k]);
    const square = second.sign ? moments.reduce((total, m, k) => total + m * places[k], 0n) : 0n;
    sums.set(row, { mass: accumulated(row), moment: accumulated(moments), square });
  }
  const counted = (row, k) => {
    const { mass, moment, square } = sums.get(row);
    return [mass[k], moment[k], moment[moment.length - 1], square].map((n, i) => new Fraction(n, units[i]));
  };
  const cells = [];
  pairwise(knots).forEach(([a, b], segment) => {
    const inside = bins.filter((x) => a.below(x) && x.below(b));
    account.divides(10 * (1 + inside.length), bitLength(denominator));
    for (const [u, v] of pairwise([a, ...inside, b])) {
      const k = countAtMost(bins, u, (bin, x) => bin.atMost(x)); // the first k outputs are on the left
      const [atStart, atStop] = [counted(rows[2 * segment], k), counted(rows[2 * segment + 1], k)];
      // All four are affine in x; E|B − x| = E B − x − 2 E[B; left] + 2x P[left].
      const along = (x) => {
        if (x === a) return atStart;
        if (x === b) return atStop;
        const t = x.minus(a).over(b.minus(a));
        return atStart.map((p, i) => p.plus(atStop[i].minus(p).times(t)).reduced());
      };
      const [atU, atV] = [along(u), along(v)];
      const w = v.minus(u);
      const [L, B, M, S] = atU;
      const [dL, dB, dM, dS] = atV.map((q, i) => q.minus(atU[i]));
      const twice = (x) => x.times(TWO);
      cells.push({
        span: [u, v],
        parts: [
          first.times(M.minus(u).minus(twice(B)).plus(twice(u.times(L))))
            .plus(second.times(S.minus(twice(u.times(M))).plus(u.times(u)))),
          first.times(dM.minus(w).minus(twice(dB)).plus(twice(u.times(dL).plus(w.times(L)))))
            .plus(second.times(dS.minus(twice(u.times(dM).plus(w.times(M)).minus(u.times(w)))))),
          first.times(twice(w.times(dL))).plus(second.times(w.times(w).minus(twice(w.times(dM))))),
        ],
      });
    }
  });
  return cells;
}

// The expected loss, from above.
function expected(cells, moments) {
  const bounds = moments.over(cells.map((cell) => cell.span), "cells");
  const terms = cells.flatMap(({ parts }, k) => parts.map((c, i) => c.times(bounds[k][i][c.sign > 0 ? 1 : 0])));
  const starts = cells.map((cell) => cell.span[0]);
  for (const [x, mass] of moments.atoms) {
    const place = countAtMost(starts, x, (start, y) => start.atMost(y)) - 1;
    const { span, parts } = cells[Math.min(Math.max(place, 0), cells.length - 1)];
    const t = x.minus(span[0]).over(span[1].minus(span[0]));
    const loss = parts[0].plus(parts[1].times(t)).plus(parts[2].times(t).times(t));
    terms.push(loss.times(mass[loss.sign > 0 ? 1 : 0]));
  }
  return sum(terms);
}

// The largest value of a + bt + ct² for t from 0 to 1.
function highest([a, b, c]) {
  const ends = larger(a, a.plus(b).plus(c));
  const inside = c.sign < 0 && b.sign > 0 && b.below(c.times(TWO).negative());
  return inside ? larger(ends, a.minus(b.times(b).over(c.times(FOUR)))) : ends;
}

// Masses and moments that the proof of the value states on cells and the one of the bound on spans.
function statedMoments(cells, spans) {
  const held = cells ?? spans; // point masses stand in both
  const samePoints = () => cells.masses.length === spans.masses.length && cells.masses.every((m, k) => m === spans.masses[k]);
  if (cells !== null && spans !== null && (!samePoints() || cells.spans.length || spans.cells.length))
    throw new Refused("two proofs that state other point masses, or moments that neither needs");
  return held && { masses: held.masses, cells: (cells ?? held).cells, spans: (spans ?? held).spans };
}

// Steps from one end of an alphabet to the other.
const stepsOf = (grid) => Math.ceil((2 * double(grid.max_abs)) / double(grid.step) - NEAR);

// Whether outputs are among those of an alphabet.
export function onGrid(grid, outputs) {
  const count = stepsOf(grid);
  const [reach, steps] = [rational(grid.max_abs), new Fraction(BigInt(count))];
  return outputs.every((b) => {
    const place = b.plus(reach).times(steps).over(reach.plus(reach));
    const nearest = place.plus(new Fraction(1n, 2n)).floor();
    const near = place.minus(new Fraction(nearest)).absolute().atMost(rational(NEAR * count));
    return near && nearest >= 0n && nearest <= BigInt(count);
  });
}

// The outputs that a lower bound speaks of.
function outputsOf(duals) {
  if (duals === null || duals.outputs === null || !duals.outputs.length) return "these outputs";
  const own = duals.outputs;
  const kind = duals.between ? "any outputs" : `outputs among ${own.length}`;
  const shortly = (x) => general(double(x), 6);
  return `${kind} from ${shortly(own[0])} to ${shortly(own[own.length - 1])}`;
}

// Add the claims of value, cap and lower bound; `growth` is at least e^ε.
export function costs(result, account, law, growth) {
  const { design, value, lower_bound: bound } = result;
  const { loss, prior } = design;
  const cap = optional(design, "max_mse", null);
  const worst = optional(design, "objective", "mean") === "worst";
  const proofs = Object.fromEntries(result.proofs.map((proof) => [proof[""], proof]));
  const [ofValue, ofBound] = [proofs["quantizer-value-proof"], proofs["quantizer-dual-bound"]];
  const duals = ofBound ? ofBound.duals : null;
  const stated = statedMoments(ofValue ? ofValue.moments : null, ofBound ? ofBound.moments : null);
  const biased = double(optional(design, "max_bias", 0)) ? "within the bias allowed" : "unbiased";
  const least = `no mechanism with ${outputsOf(duals)}, ${biased}, costs less than ${shown(bound)}`;
  const unknown = loss.function !== null; // what a function says is not in the file
  if (unknown) account.claimedCost(`the value is ${general(value, 12)}`, Number.isFinite(Number(value)));
  if (bound !== null && duals === null && !unknown && !("metric-bound" in proofs))
    throw new Refused("a lower bound without multipliers");
  if (bound !== null && (unknown || duals === null)) account.claimedCost(least, bound <= value);
  if (unknown && cap === null) return;

  let [moments, given, floats] = [null, "", 0];
  const known = rationalPrior(prior);
  if (known !== null) account.agrees("the prior is a law on the inputs", priorFits(known, law.knots));
  if (worst && cap === null) {
    if (stated !== null) throw new Refused("moments are stated where nothing is integrated");
  } else {
    moments = new Moments(prior, stated, account);
    if (moments.exact === null) given = ", given the masses and moments stated";
    floats = moments.exact !== null || ENCLOSED.includes(prior.law.name) ? 0 : NEAR;
  }
  if (cap !== null) {
    const square = expected(lossCells(law, { absolute: 0n, squared: 1n }, account), moments);
    account.bounds(`mean squared error at most ${shown(cap)}${given}`, square, rational(cap), rational(floats * double(cap)));
  }
  if (unknown) return;
  const cells = lossCells(law, loss, account);
  if (worst) account.bounds(`worst loss at most ${shown(value)}`, largest(cells.map((cell) => highest(cell.parts))), rational(value));
  else {
    const room = rational(floats * double(value));
    account.bounds(`mean loss at most ${shown(value)}${given}`, expected(cells, moments), rational(value), room);
  }
  if (bound === null || duals === null) return;
  const grid = optional(design, "bins", null);
  const own = duals.outputs !== null && duals.outputs.length ? duals.outputs.map(rational) : law.bins;
  if (isObject(grid) && "step" in grid && !duals.between && (own.length <= stepsOf(grid) || !onGrid(grid, own)))
    throw new Refused("a lower bound for other outputs than the question has");
  const price = rational(duals.cap_price);
  if (price.sign && (cap === null || worst)) throw new Refused("a price of a cap that is not there");
  const bias = rational(optional(design, "max_bias", 0));
  const ends = [law.knots[0].plus(bias), law.knots[law.knots.length - 1].minus(bias)];
  const averaged = worst ? null : moments;
  const found = dualBound(duals, law.bins, ends, bias, growth, loss, averaged, account).minus(price.times(rational(cap ?? 0)));
  const loose = floats * (1 + Math.min(growth.toNumber(), 1e300) / 1000) * Math.abs(double(bound));
  account.bounds(least + (worst ? "" : given), rational(bound), found, rational(loose));
}

// Whether a rational prior has no negative mass, a total of 1, and nothing outside the inputs but for rounding.
function priorFits({ pieces, points }, knots) {
  const [low, high] = [knots[0], knots[knots.length - 1]];
  const near = high.minus(low).times(rational(NEAR)).over(new Fraction(1000n));
  const parts = [...pieces, ...points.map(([x, m]) => [x, x, m])];
  // a uniform law of negative scale is a piece whose stop is before its start
  const within = (a, b) => low.minus(near).atMost(a) && a.atMost(b) && b.atMost(high.plus(near));
  const inside = ([a, b, m]) => !m.sign || (within(a, b) && m.sign > 0);
  return parts.every(inside) && sum(parts.map(([, , m]) => m)).equals(ONE);
}
