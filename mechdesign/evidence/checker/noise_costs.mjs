// What an error costs: E|T|^p for p = 1, 2, of each family at unit scale.

import { gaussianSums } from "./discrete_laws.mjs";
import { gamma, mills } from "./noise_laws.mjs";
import { exp, ln, one, PI, real, squareRoot, totalOf, two } from "./real.mjs";

const three = real(3);

function truncatedCost(p, c) {
  const last = exp(c.negative());
  const beyond = p === 1 ? c.plus(one) : c.times(c).plus(c.doubled()).plus(two);
  return real(p).minus(last.times(beyond)).over(one.minus(last));
}

// E(T + b) = 1/M(b) and E T(T + b) = 1, by parts.
function offsetCost(p, b) {
  const mean = one.over(mills(b)).minus(b);
  return p === 1 ? mean : one.minus(b.times(mean));
}

function huberCost(p, b) {
  if (!b.sign) return offsetCost(p, b);
  const z = b.times(b);
  const [last, tail] = [exp(z.negative()), mills(b)];
  const squares = z.times(z).plus(z.doubled()).plus(two);
  const centre = p === 1 ? one.minus(last.times(one.plus(z))).over(z) : two.minus(last.times(squares)).over(z.times(b));
  const beyond = last.times(p === 1 ? one : b.plus(tail));
  return centre.plus(beyond).over(last.times(tail).plus(one.minus(last).over(b)));
}

// Σ over steps k of b^k (∫ over [k, k + γ] + b ∫ over [k + γ, k + 1]) of t^p, by Σ b^k k^j.
function staircaseCost(p, epsilon, g) {
  const b = exp(epsilon.negative());
  const rest = one.minus(b);
  const powers = [one.over(rest), b.over(rest.times(rest)), b.times(one.plus(b)).over(rest.times(rest).times(rest))];
  const level = rest.over(g.plus(b.times(one.minus(g))));
  const mixed = (x) => x.plus(b.times(one.minus(x))); // of γ, γ² and γ³
  const [first, second, third] = [g, g.times(g), g.times(g).times(g)].map(mixed);
  // ∫ of t over [k + x, k + y] = k (y − x) + (y² − x²)/2
  if (p === 1) return level.times(first.times(powers[1]).plus(second.doubled(-1).times(powers[0])));
  return level.times(first.times(powers[2]).plus(second.times(powers[1])).plus(third.over(three).times(powers[0])));
}

function gaussianSumCost(p, sigma) {
  const { weights, whole } = gaussianSums(sigma);
  return totalOf(weights.map((weight, k) => weight.times(real(k ** p)))).doubled().over(whole);
}

function discreteLaplaceCost(p, a) {
  const fall = exp(a.negative());
  const rest = one.minus(fall);
  return fall.doubled().over(p === 1 ? one.minus(fall.times(fall)) : rest.times(rest));
}

export const COSTS = {
  norm: (p) => (p === 2 ? one : squareRoot(two.over(PI))),
  laplace: (p) => real(p),
  truncated_laplace: truncatedCost,
  logistic: (p) => (p === 1 ? ln(two).doubled() : PI.times(PI).over(three)),
  osgt: offsetCost,
  flipped_huber: huberCost,
  gennorm: (p, power) => gamma(real(p + 1).over(power)).over(gamma(one.over(power))),
  staircase: staircaseCost,
  dlaplace: discreteLaplaceCost,
  discrete_gaussian: gaussianSumCost,
};
