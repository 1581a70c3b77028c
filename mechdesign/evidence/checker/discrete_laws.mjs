// Laws on the integers, and the staircase: outcomes of one privacy loss each, or neighbouring ones together.
//
// Moved by r, a symmetric log-concave law on the integers loses log P(k) − log P(k + r) at k, which rises with k: so δ = max over k
// of P(K ≥ k) − e^ε P(K ≥ k + r), and the integers from one to another have their losses between those of these two.

import { Refused } from "./errors.mjs";
import { atom, cell } from "./loss_cells.mjs";
import { magnitude, maximum } from "./rational.mjs";
import { exp, least, most, one, real, SLACK, tenTo, zero } from "./real.mjs";
import { pairwise } from "./reading.mjs";

const LARGEST_SIGMA = real(50_000);
const NOTHING = tenTo(-60);

// P(K ≥ k); the loss at k; the integers between which it changes; whether it is the same for all that are larger.
class Whole {
  constructor(above, loss, first, last, bounded) {
    Object.assign(this, { above, loss, first, last, bounded });
  }
  // Cells of the loss, about so many (at most twice), and the mass whose loss is taken as infinite.
  cells(shift, most) {
    const { first, last } = this;
    const below = atom(one.minus(this.above(first)), this.loss(first - 1n)); // no loss is larger there
    const looks = [];
    const look = (k) => looks.push({ k, p: this.above(k), q: this.above(k + shift) });
    const stride = maximum(1n, (last + 1n - first) / BigInt(most));
    for (let k = first; k <= last; k += stride) look(k);
    look(last + 1n);
    const found = pairwise(looks).map(([a, b]) => cell(a.p.minus(b.p), a.q.minus(b.q), this.loss(a.k), this.loss(b.k - 1n)));
    const beyond = looks[looks.length - 1].p;
    if (this.bounded) return { cells: [below, ...found, atom(beyond, this.loss(last + 1n))], infinite: zero };
    return { cells: [below, ...found], infinite: beyond };
  }
  delta(shift, epsilon) {
    let [low, high] = [this.first - 1n, this.last + 1n];
    for (;;) {
      const middle = (low + high) >> 1n;
      if (middle <= low) break;
      if (epsilon.below(this.loss(middle))) high = middle;
      else low = middle;
    }
    const growth = exp(epsilon);
    let found = zero;
    for (let k = low - 1n; k < high + 2n; k++) found = most(found, this.above(k).minus(growth.times(this.above(k + shift))));
    return found.plus(SLACK);
  }
}

// P(K ≥ k) of a symmetric law, by that of positive k.
const symmetric = (tail) => (k) => (k > 0n ? tail(k) : one.minus(tail(1n - k)));

// P(k) ∝ e^(-a|k|): the loss is a(|k + r| − |k|).
function discreteLaplace(a, shift) {
  const r = wholeShift(shift);
  const whole = one.plus(exp(a.negative()));
  const above = symmetric((k) => exp(a.times(real(-k))).over(whole));
  return new Whole(above, (k) => a.times(real(magnitude(k + r) - magnitude(k))), 1n - r, -1n, true);
}

// P(k) ∝ e^(-k²/2σ²), as far as it is 1e-60: the loss is r(r + 2k)/2σ².
function discreteGaussian(sigma, shift) {
  const r = wholeShift(shift);
  const { weights, tails, whole } = gaussianSums(sigma);
  const unit = real(r).over(sigma.times(sigma).doubled());
  const above = symmetric((k) => (k < tails.length ? tails[Number(k)].over(whole) : zero));
  const last = BigInt(weights.length - 1);
  return new Whole(above, (k) => unit.times(real(r + 2n * k)), -last, last, false);
}

const latest = { sigma: null, sums: null };

// e^(-k²/2σ²) of k = 0, 1, … as far as it is 1e-60; the sums from each k on, of which the last stands for more than what is left
// beyond; and the sum over all integers.
export function gaussianSums(sigma) {
  if (latest.sigma && !latest.sigma.minus(sigma).sign) return latest.sums;
  if (LARGEST_SIGMA.below(sigma)) throw new Refused("discrete Gaussian noise of sigma above 50000");
  let [weight, fall] = [one, exp(one.over(sigma.times(sigma)).doubled(-1).negative())];
  const twice = fall.times(fall);
  const weights = [];
  for (; NOTHING.below(weight); weight = weight.times(fall), fall = fall.times(twice)) weights.push(weight);
  let rest = weights[weights.length - 1].times(real(weights.length));
  const tails = [rest];
  for (let k = weights.length - 1; k >= 0; k--) tails.push((rest = rest.plus(weights[k])));
  tails.reverse();
  const sums = { weights, tails, whole: tails[0].doubled().minus(weights[0]) };
  Object.assign(latest, { sigma, sums });
  return sums;
}

// Steps of length 1, which fall by e^-ε at k + γ: a shift of at most a step changes the density by that factor or not.
export function staircaseAtoms([epsilon, gamma], shift) {
  if (one.below(shift)) throw new Refused("a change of more than one step of the staircase");
  const b = exp(epsilon.negative());
  const level = one.minus(b).over(gamma.plus(b.times(one.minus(gamma))).doubled());
  const beyond = most(zero, least(gamma, shift.minus(gamma)));
  const high = level.times(least(gamma, shift).plus(shift.times(b).over(one.minus(b))).plus(beyond));
  const low = high.times(b);
  return [atom(high, epsilon), atom(one.minus(high).minus(low), zero), atom(low, epsilon.negative())];
}

function wholeShift(shift) {
  const found = shift.floor();
  if (real(found).below(shift) || found < 1n) throw new Refused("noise on whole numbers for a change that is none");
  return found;
}

export const WHOLE = { dlaplace: discreteLaplace, discrete_gaussian: discreteGaussian };
