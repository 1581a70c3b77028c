// Calibrated noise: what all coordinates and rounds consume of the budget, and what an error costs.
//
// A change moves each of K coordinates by at most v. Under Laplace noise of scale s the largest privacy loss of a coordinate is v/s;
// losses add up over coordinates and rounds. Normal noise is (v²K/2σ²)-zCDP a round, and all rounds together are one coordinate at
// the shift μ = (v/σ) √(K · rounds), for which δ(ε) = P(Z > ε/μ − μ/2) − e^ε P(Z > ε/μ + μ/2).
//
// Other families, sensitivities of several bounds, sampled rounds and compositions of losses are checked by verify.pyz alone.

import { spokenOf } from "./bound_class.mjs";
import { NotCovered, Refused } from "./errors.mjs";
import { meanOfNormal, normalTail, root } from "./normal_tail.mjs";
import { Fraction, ONE, rational, TWO } from "./rational.mjs";
import { difference, expBounds, optional } from "./reading.mjs";
import { shown } from "./words.mjs";

const NAMES = { gaussian: "norm" };
const BILLIONTH = new Fraction(1n, 10n ** 9n);
const ROUNDED = ONE.plus(new Fraction(1n, 10n ** 45n)); // above the rounding of a few decimals
const ABOVE = new Fraction(1n, 10n ** 40n); // and of a tail

export function calibration(result, account) {
  const { design, mechanism: noise, value } = result;
  if (noise[""] !== "additive-noise") throw new Refused("a mechanism that is no additive noise");
  const { law } = noise;
  const { privacy, noise: wanted } = design;
  const { sensitivity, dimension, rounds, sampling_rate: rate } = noise;
  const covered = typeof wanted === "string" && ["norm", "laplace"].includes(law.name) && [sensitivity, design.sensitivity].every((x) => typeof x !== "object");
  if (!covered || Object.keys(law).some((key) => !["", "name", "args", "scale"].includes(key)) || law.args.length)
    throw new NotCovered(`calibrated noise of the law ${law.name}, or of several bounds, in a page`);
  for (const name of ["sensitivity", "dimension", "rounds", "sampling_rate"])
    account.agrees(`the noise is for the ${name} that the design states`, noise[name] == design[name]);
  account.agrees("the noise is of the family asked for", (NAMES[wanted] ?? wanted) === law.name);
  const scale = rational(optional(law, "scale", 1n));
  if (scale.sign <= 0) throw new Refused("a scale that is not positive and finite");
  costFits(law.name, design.loss, scale, value, account);
  if (rounds < 1n || dimension < 1n || !(rate > 0 && rate <= 1)) throw new Refused("rounds or a sampling rate that are none");
  if (rate < 1 && privacy[""] === "zcdp") throw new Refused("a sampling rate under zero-concentrated privacy");
  if (rate < 1) throw new NotCovered("sampled rounds, in a page");
  const shift = rational(sensitivity).over(scale);
  const times = new Fraction(dimension * rounds);
  if (privacy[""] === "zcdp" && law.name === "norm") {
    const xi = rational(privacy.xi);
    const claim = `rho at most ${shown(privacy.rho)}${xi.sign ? ` beyond xi = ${shown(privacy.xi)}` : ""}`;
    const consumed = times.times(shift).times(shift).over(TWO);
    const rho = rational(privacy.rho);
    account.proved(claim, consumed.atMost(rho.times(ROUNDED)), difference(consumed, rho));
  } else if (privacy[""] === "pure-dp" && law.name === "laplace") {
    const consumed = times.times(shift);
    const epsilon = rational(privacy.epsilon);
    account.proved(`privacy loss at most ${shown(privacy.epsilon)}`, consumed.atMost(epsilon.times(ROUNDED)), difference(consumed, epsilon));
  } else if (privacy[""] === "approximate-dp" && rational(privacy.delta).sign && law.name === "norm") {
    const found = normalDelta(root(times.times(shift).times(shift)).times(ROUNDED), rational(privacy.epsilon));
    const delta = rational(privacy.delta);
    const claim = `delta at most ${shown(privacy.delta)} at epsilon = ${shown(privacy.epsilon)}`;
    account.proved(claim, found.atMost(delta), difference(found, delta));
  } else {
    throw new NotCovered(`calibrated ${law.name} noise under ${privacy[""]}, in a page`);
  }
  const bound = result.lower_bound;
  if (bound !== null) account.claimed(`no private noise of this class (${spokenOf(result)}) costs less than ${shown(bound)}`);
}

// That the value is E|T| or E T² of the law: from above, and no more than it.
function costFits(name, loss, scale, value, account) {
  const squared = loss === "squared";
  if (!squared && loss !== "absolute") throw new Refused("a loss of no such name");
  const unit = name === "laplace" ? (squared ? TWO : ONE) : squared ? ONE : meanOfNormal();
  const cost = unit.times(squared ? scale.times(scale) : scale);
  const stated = rational(value);
  const room = stated.times(BILLIONTH);
  account.bounds(`the ${loss} loss is at most ${shown(value)}`, cost, stated, room);
  account.agrees("the value is no more than the loss", stated.atMost(cost.plus(room.times(new Fraction(1000n)))));
}

// δ of normal noise at the shift μ, from above.
function normalDelta(mu, epsilon) {
  const [near, half] = [epsilon.over(mu), mu.over(TWO)];
  const growth = expBounds(epsilon)[0];
  const beyond = growth.times(normalTail(near.plus(half)));
  return normalTail(near.minus(half)).minus(beyond).plus(ABOVE);
}

