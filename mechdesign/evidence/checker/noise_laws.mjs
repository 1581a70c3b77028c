// Laws of additive noise: tails, log densities and privacy losses.
//
// A continuous law is symmetric and log-concave, at unit scale. Moved by r it has the loss L(s) = g(|s + r/2|) − g(|s − r/2|) at s
// from the middle, g = −log of the density: odd, and increasing in s.

import { exp, half, ln, most, one, PI, real, SLACK, squareRoot, tenTo, zero } from "./real.mjs";

const TINY = tenTo(-52);
const ROOT = squareRoot(PI.doubled()); // √(2π)

// −log of the density but for a constant, and P(T > t), both of t ≥ 0; the end of the support, if it has one; where the density bends. Both at
// two points take as much work as so many operations (`Account.takes`).
export class Law {
  constructor(exponent, upper, { end = null, bends = [zero], work = 400 } = {}) {
    Object.assign(this, { exponent, upper, end, bends, work });
  }
  // P(T > t) of any t.
  above(t) {
    return t.sign >= 0 ? this.upper(t) : one.minus(this.upper(t.negative()));
  }
  // The privacy loss at s ≥ 0 from the middle between the two centres; null where it is infinite.
  loss(s, shift) {
    const [near, far] = [s.minus(shift.doubled(-1)).absolute(), s.plus(shift.doubled(-1))];
    return this.end && this.end.below(far) ? null : this.exponent(far).minus(this.exponent(near));
  }
  // Two points, as near as numbers are, between which the loss passes this value, if it does.
  around(loss, shift) {
    let [low, high] = [zero, shift];
    const reached = (s) => {
      const found = this.loss(s, shift);
      return found !== null && found.atMost(loss);
    };
    while (reached(high) && SLACK.below(this.above(high))) high = high.doubled();
    for (;;) {
      const middle = low.plus(high).doubled(-1);
      if (!low.below(middle) || !middle.below(high)) return [low, high];
      if (reached(middle)) low = middle;
      else high = middle;
    }
  }
}

// P(Z > x)/φ(x) of a normal Z, x ≥ 0: a series near 0, far out the continued fraction x + 1/(x + 2/(x + …)), which lies between
// neighbouring convergents; they are within 1e-52 after so many steps.
export function mills(x) {
  const square = x.times(x);
  if (x.atMost(real(4))) {
    const z = square.doubled(-1);
    return ROOT.doubled(-1).times(exp(z)).minus(x.doubled(-1).times(series(half, z)));
  }
  let found = x;
  for (let k = 25 + Math.floor(4400 / square.toNumber()); k > 0; k--) found = x.plus(real(k).over(found));
  return one.over(found);
}

export const signedMills = (x) =>
  x.sign >= 0 ? mills(x) : ROOT.times(exp(x.times(x).doubled(-1))).minus(mills(x.negative()));

// Σ z^n / (a (a + 1) … (a + n)) = γ(a, z) e^z / z^a: positive terms.
function series(a, z) {
  let [term, sum, n] = [one.over(a), one.over(a), a];
  while (TINY.times(sum).below(term) || n.below(z)) {
    n = n.plus(one);
    term = term.times(z).over(n);
    sum = sum.plus(term);
  }
  return sum;
}

// Γ(a) of a ≤ 40, but for what of its integral lies beyond 400.
export function gamma(a) {
  const z = real(400);
  return exp(a.times(ln(z)).minus(z)).times(series(a, z));
}

export const fall = (x) => exp(x.negative());

function truncatedLaplace(end) {
  const last = fall(end);
  const upper = (t) => most(fall(t).minus(last).doubled(-1).over(one.minus(last)), zero);
  return new Law((t) => t, upper, { end, work: 120 });
}

// OSGT: density ∝ e^(-t²/2 - b t), whose tail is e^(-t²/2 - b t) M(t + b)/(2 M(b)); normal for b = 0.
function offsetGaussian(b) {
  const level = half.over(mills(b));
  const exponent = (t) => t.times(t.doubled(-1).plus(b));
  return new Law(exponent, (t) => level.times(fall(exponent(t))).times(mills(t.plus(b))));
}

// Density ∝ e^(-b t) up to b, e^(-(t² + b²)/2) beyond.
function flippedHuber(b) {
  if (!b.sign) return offsetGaussian(zero);
  const square = b.times(b);
  const squares = (t) => t.times(t).plus(square).doubled(-1);
  const mass = (t) => {
    const far = most(t, b);
    const tail = fall(squares(far)).times(mills(far));
    return b.atMost(t) ? tail : tail.plus(fall(b.times(t)).minus(fall(square)).over(b));
  };
  const whole = mass(zero).doubled();
  return new Law((t) => (t.atMost(b) ? b.times(t) : squares(t)), (t) => mass(t).over(whole), { bends: [zero, b] });
}

// Density ∝ e^(-t^β), whose tail is an incomplete Γ function of t^β.
function generalisedNormal(power) {
  const exponent = (t) => (t.sign ? exp(power.times(ln(t))) : zero);
  const a = one.over(power);
  const level = half.over(gamma(a));
  const upper = (t) => {
    const z = exponent(t);
    return z.below(real(300)) ? most(half.minus(level.times(t).times(fall(z)).times(series(a, z))), zero) : zero;
  };
  return new Law(exponent, upper, { work: 700 });
}

export const CONTINUOUS = {
  norm: () => offsetGaussian(zero),
  laplace: () => new Law((t) => t, (t) => fall(t).doubled(-1), { work: 120 }),
  truncated_laplace: truncatedLaplace,
  logistic: () => new Law((t) => t.plus(ln(one.plus(fall(t))).doubled()), (t) => one.over(one.plus(exp(t)))),
  osgt: offsetGaussian,
  flipped_huber: flippedHuber,
  gennorm: generalisedNormal,
};
