// K-norm noise: density ∝ e^(−‖z‖/s), under pure privacy.
//
// Theorem (Hardt and Talwar 2010). A change v loses (‖z + v‖ − ‖z‖)/s ≤ ‖v‖/s, by the triangle inequality. So what counts is the
// largest norm of a change: its ℓ₁, ℓ₂ or ℓ_∞ norm, for |v_i| ≤ b_i of at most c coordinates, ‖v‖₁ ≤ L₁, ‖v‖₂ ≤ L₂. The largest ‖v‖₁
// under L₂ alone is, whatever t > 0, at most Σ (v − v²/2t) + L₂²/2t, v = min(b_i, t): weak duality.
//
// One coordinate has the variance 2s², (k + 1)s², (k + 1)(k + 2)s²/3, and E|z_i| = s, s k Γ(k/2)/(√π Γ((k + 1)/2)), s (k + 1)/2.

import { Refused } from "./errors.mjs";
import { double, Fraction, ONE, rational, smaller, smallest, sum, THREE, TWO, ZERO } from "./rational.mjs";
import { difference, isObject, NEAR } from "./reading.mjs";
import { one, PI, real, two } from "./real.mjs";
import { shown } from "./words.mjs";

const NORMS = [1, 2, Infinity];
const TRILLION = new Fraction(10n ** 12n);
const counted = (count) => new Fraction(count);

export function knorm(result, account) {
  const { design, mechanism: law, value, lower_bound: bound } = result;
  const { dimension, rounds } = design;
  const epsilon = rational(design.privacy.epsilon);
  const norm = Number(law.norm);
  const asked = design.norm === null ? null : Number(design.norm);
  account.agrees("the noise is for the design's numbers", law.dimension === dimension);
  account.agrees("the norm is one that is allowed", NORMS.includes(norm) && (asked === null || asked === norm));
  if (account.rows.some((row) => !row.holds)) return;
  const bounds = boundsOf(design.sensitivity, dimension);
  account.takes(10 * bounds.sizes.length, 3000);
  account.takes(design.loss === "absolute" ? 16 * Number(dimension) : 0);
  if (law.largest === null) throw new Refused("noise that does not say for which changes it is");
  const [scale, largest] = [rational(law.scale), rational(law.largest)];
  account.proved(`no change has a norm above ${shown(law.largest)}`, covers(norm, bounds, largest));
  const [lost, allowed] = [counted(rounds).times(largest), epsilon.times(scale)];
  account.proved(`privacy loss at most ${shown(epsilon.toNumber())}`, lost.atMost(allowed), difference(lost.over(scale), epsilon));
  const stated = rational(value);
  const found = coordinateCost(norm, dimension, scale, design.loss);
  account.bounds(`the ${design.loss} error is at most ${shown(value)}`, found, stated, stated.over(TRILLION));
  if (bound === null) return;
  // the least scale of each norm, from below: a change of at least this norm there is
  const costs = (asked === null ? NORMS : [asked]).map((each) => {
    const narrowest = reachedNorm(each, bounds).times(counted(rounds)).over(epsilon);
    return coordinateCost(each, dimension, narrowest, design.loss);
  });
  const holds = rational(bound).atMost(smallest(costs).times(ONE.plus(rational(NEAR))));
  account.add(`no K-norm noise of these norms costs less than ${shown(bound)}`, "recomputed", holds);
}

// What single coordinates change by at most (sizes and how many coordinates have them, from the largest on), and L₁ and L₂.
function boundsOf(sensitivity, dimension) {
  if (!isObject(sensitivity)) return { sizes: [{ size: rational(sensitivity), count: dimension }], l1: null, l2: null };
  const norms = ["linf", "l1", "l2"].map((name) => sensitivity[name]).filter((norm) => norm !== null);
  const lowest = (list) => list.reduce((a, b) => (b < a ? b : a));
  const changed = sensitivity.l0 && sensitivity.l0 < dimension ? sensitivity.l0 : dimension;
  const [l1, l2] = ["l1", "l2"].map((name) => (sensitivity[name] === null ? null : rational(sensitivity[name])));
  if (sensitivity.each === null) return { sizes: [{ size: rational(lowest(norms)), count: changed }], l1, l2 };
  if (BigInt(sensitivity.each.length) !== dimension) throw new Refused("bounds of other coordinates than the answer's");
  const each = sensitivity.each.map((bound) => rational(lowest([bound, ...norms]))).filter((size) => size.sign > 0);
  const sizes = [];
  for (const size of each.sort((a, b) => b.compare(a)).slice(0, Number(changed))) {
    const last = sizes[sizes.length - 1];
    if (last && last.size.equals(size)) last.count += 1n;
    else sizes.push({ size, count: 1n });
  }
  if (!sizes.length) throw new Refused("bounds that allow no change");
  return { sizes, l1, l2 };
}

const summed = (sizes) => sum(sizes.map(({ size, count }) => size.times(counted(count))));
const squared = (sizes) => sum(sizes.map(({ size, count }) => size.times(size).times(counted(count))));

// The largest Σ v² within ‖v‖₁ ≤ L₁: the largest bounds, filled.
function filledSquares({ sizes, l1 }) {
  if (l1 === null) return squared(sizes);
  let [square, left] = [ZERO, l1];
  for (const { size, count } of sizes) {
    const fit = left.over(size);
    const whole = fit.n / fit.d < count ? fit.n / fit.d : count;
    const filled = size.times(counted(whole));
    const part = whole < count ? smaller(left.minus(filled), size) : ZERO;
    square = square.plus(filled.times(size)).plus(part.times(part)).reduced();
    left = left.minus(filled).minus(part).reduced();
  }
  return square;
}

// The largest ‖v‖₁ within ‖v‖₂ ≤ L₂, from above.
function watered({ sizes, l2 }) {
  const most = l2.times(l2);
  if (squared(sizes).atMost(most)) return summed(sizes);
  const cut = (level) => sizes.map(({ size, count }) => ({ size: smaller(size, level), count }));
  let [low, high] = [0, double(sizes[0].size)];
  for (;;) {
    const middle = (low + high) / 2;
    if (!(low < middle && middle < high)) break;
    if (most.below(squared(cut(rational(middle))))) high = middle;
    else low = middle;
  }
  const twice = TWO.times(rational(high));
  const kept = cut(rational(high));
  return summed(kept).minus(squared(kept).over(twice)).plus(most.over(twice));
}

// Whether no change has a larger norm.
function covers(norm, bounds, largest) {
  const { sizes, l1, l2 } = bounds;
  if (norm === Infinity) return sizes[0].size.atMost(largest);
  if (norm === 2) return filledSquares(bounds).atMost(largest.times(largest)) || (l2 !== null && l2.atMost(largest));
  const others = [l1, l2 && l2.sign ? watered(bounds) : null].filter((bound) => bound && bound.sign);
  return smallest([summed(sizes), ...others]).atMost(largest);
}

// The largest norm of a change: that of ℓ₂ to rounding, the others from above.
function reachedNorm(norm, bounds) {
  const { sizes, l1, l2 } = bounds;
  if (norm === Infinity) return sizes[0].size;
  if (norm === 2) {
    const found = rational(Math.sqrt(filledSquares(bounds).toNumber()));
    return l2 === null ? found : smaller(found, l2);
  }
  return smallest([summed(sizes), l1, l2 && watered(bounds)].filter((bound) => bound !== null));
}

// The variance, or E|z|, of one coordinate.
function coordinateCost(norm, k, scale, loss) {
  if (loss === "squared") {
    const factors = { 1: TWO, 2: counted(k + 1n), Infinity: counted((k + 1n) * (k + 2n)).over(THREE) };
    return scale.times(scale).times(factors[norm]);
  }
  if (norm === 2) return scale.times(counted(k)).times(ratioOfGammas(k));
  return norm === 1 ? scale : scale.times(counted(k + 1n)).over(TWO);
}

// Γ(k/2)/(√π Γ((k + 1)/2)): 1 for k = 1, and for k and k + 1 together 2/πk.
function ratioOfGammas(k) {
  let found = one;
  for (let j = 1n; j < k; j++) found = two.over(PI.times(real(j)).times(found));
  return found.toFraction();
}
