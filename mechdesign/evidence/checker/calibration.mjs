// Calibrated noise: what all coordinates and rounds consume of the budget, and what an error costs.
//
// A change moves coordinate i by at most v_i. Independent noise of a symmetric log-concave law loses most where every v_i is as large
// as it can be: larger shifts have hockey-stick curves that are nowhere lower, and so have their products (worst_shifts.mjs). At these
// shifts the largest losses add up, a round that is sampled at rate q having log(1 + q (e^ℓ − 1)) of its ℓ; normal noise consumes
// ρ = Σ v_i²/2σ². What other losses consume is bounded by composed_noise.mjs and, under zero-concentrated privacy, concentrated.mjs.

import { spokenOf } from "./bound_class.mjs";
import { isClosed, leastConsumed } from "./composed_noise.mjs";
import { concentrated } from "./concentrated.mjs";
import { NotCovered, Refused } from "./errors.mjs";
import { COSTS } from "./noise_costs.mjs";
import { Fraction, rational } from "./rational.mjs";
import { exp, half, least, ln, one, real, ROUND, SLACK, squareRoot, tenTo, totalOf, two } from "./real.mjs";
import { difference, equal, isObject, optional } from "./reading.mjs";
import { shown } from "./words.mjs";
import { worstShifts } from "./worst_shifts.mjs";

const NAMES = { gaussian: "norm", discrete_laplace: "dlaplace" };
const NEAR_ENDS = tenTo(-10); // how far the ends of an enclosure may come out elsewhere, relative
const NEAR_UPPER = tenTo(-2); // by how much what is found may be above the end stated, as a share of the budget
const BILLION = new Fraction(10n ** 9n);
const THOUSAND = new Fraction(1000n);

export function calibration(result, account) {
  const { design, mechanism: noise } = result;
  const { law } = noise;
  const { noise: wanted, privacy } = design;
  if (!["pure-dp", "approximate-dp", "zcdp"].includes(privacy[""])) throw new NotCovered(`calibrated noise under ${privacy[""]}, in a page`);
  for (const name of ["sensitivity", "dimension", "rounds", "sampling_rate"])
    account.agrees(`the noise is for the ${name} that the design states`, equal(noise[name], design[name]));
  if (Array.isArray(wanted)) throw new Refused("a family that is none");
  const family = isObject(wanted) ? wanted.name : Object.hasOwn(NAMES, wanted) ? NAMES[wanted] : wanted;
  account.agrees("the noise is of the family asked for", family === law.name && (!isObject(wanted) || equal(wanted.args, law.args)));
  const { name, shapes, scale } = lawThatCosts(law, design.loss, result.value, account);
  const proofs = result.proofs.filter((proof) => proof[""] === "calibration-proof");
  if (proofs.length !== 1) throw new Refused("not one proof of what is consumed of the budget");
  const [{ spent }] = proofs;
  const delta = optional(privacy, "delta", 0n);
  if (delta > 1) throw new Refused("a point (epsilon, delta) that is none");
  const budget = real(privacy[""] === "zcdp" ? privacy.rho : Number(delta) ? delta : privacy.epsilon);
  const aim = least(budget, real(spent.upper).plus(budget.times(NEAR_UPPER)));
  enclosed(spent, budget, consumption(noise, privacy, name, shapes, scale, aim, account), account);
  const bound = result.lower_bound;
  if (bound !== null) account.claimedCost(`no private noise of this class (${spokenOf(result)}) costs less than ${shown(bound)}`);
}

// The name, shapes and scale of a law whose error costs what is stated.
function lawThatCosts(law, loss, value, account) {
  if (!Object.hasOwn(COSTS, law.name)) throw new NotCovered(`noise of the law ${law.name}`);
  if (Object.keys(law).some((key) => !["", "name", "args", "scale"].includes(key)))
    throw new NotCovered(`noise of the law ${law.name} with other parameters than shapes and a scale`);
  const [name, shapes, scale] = [law.name, law.args.map(real), real(optional(law, "scale", 1n))];
  if (scale.sign <= 0) throw new Refused("a scale that is not positive and finite");
  if (!proper(name, shapes)) throw new Refused(`a shape that no law ${name} has`);
  const power = { absolute: 1, squared: 2 }[loss];
  const cost = COSTS[name](power, ...shapes).times(power === 2 ? scale.times(scale) : scale).toFraction();
  const stated = rational(value);
  const room = stated.over(BILLION);
  account.bounds(`the ${loss} loss is at most ${shown(value)}`, cost, stated, room);
  account.agrees("the value is no more than the loss", stated.atMost(cost.plus(room.times(THOUSAND))));
  if ((name === "osgt" || name === "flipped_huber") && !shapes[0].sign) return { name: "norm", shapes: [], scale }; // their normal member
  if (name === "gennorm" && !shapes[0].minus(two).sign) return { name: "norm", shapes: [], scale: scale.times(squareRoot(half)) };
  return { name, shapes, scale };
}

// Compare the enclosure stated with what is consumed, or with an upper bound of that; null is no end.
function enclosed(spent, budget, { found, exact }, account) {
  const [lower, upper] = [real(spent.lower), real(spent.upper)];
  const within = !found || lower.atMost(found.times(one.plus(NEAR_ENDS)).plus(SLACK));
  const ordered = lower.atMost(upper) && upper.atMost(budget) && within;
  const reached = found && found.atMost(upper.plus(budget.times(NEAR_UPPER)));
  if (exact) account.agrees("the enclosure stated holds what is consumed", ordered && found && found.times(one.minus(NEAR_ENDS)).minus(SLACK).atMost(upper));
  else account.claimed(`what is consumed is from ${shown(spent.lower)} to ${shown(spent.upper)}, ${spent.how}`, ordered && reached);
}

// Check that what is consumed is within the budget: how much that is, and whether that is exact or from above. `aim`: how little of the
// budget it should be seen to be, if it is.
function consumption(noise, privacy, name, shapes, scale, aim, account) {
  const { sensitivity, dimension, rounds } = noise;
  const rate = real(noise.sampling_rate);
  if (!(rate.sign > 0 && rate.atMost(one)) || rounds < 1n || dimension < 1n)
    throw new Refused("rounds, coordinates or a sampling rate that are none");
  const sampled = rate.below(one);
  if (sampled && isObject(sensitivity) && sensitivity.neighbours !== "add-remove")
    throw new Refused("a Poisson sample where one record is replaced");
  const concentratedAsked = privacy[""] === "zcdp";
  const normal = name === "norm" || (name === "discrete_gaussian" && concentratedAsked);
  const cases = worstShifts(sensitivity, dimension, normal ? "norm" : name, account).map((moved) =>
    moved.map(({ shift, count }) => ({ shift: shift.over(scale), count })),
  );
  if (concentratedAsked) {
    if (sampled) throw new Refused("a sampling rate under zero-concentrated privacy");
    const [rho, xi] = [real(privacy.rho), real(privacy.xi)];
    const claim = `rho at most ${shown(privacy.rho)}${xi.sign ? ` beyond xi = ${shown(privacy.xi)}` : ""}`;
    if (normal) {
      // D_α is proportional to α, so that ξ helps at α = 1 only
      const width = name === "norm" ? one : shapes[0];
      const ratios = cases[0].map(({ shift, count }) => ({ ratio: shift.over(width), count: real(count * rounds) }));
      const found = totalOf(ratios.map(({ ratio, count }) => ratio.times(ratio).times(count))).doubled(-1);
      account.proved(claim, found.atMost(rho.times(ROUND)), left(found, rho));
      return { found, exact: cases.length === 1 && name === "norm" && !xi.sign };
    } else {
      const repeated = cases.map((moved) => moved.map(({ shift, count }) => ({ shift, count: count * rounds })));
      const kept = (goal) => (moved) => concentrated(name, shapes, moved, moved.map(({ shift }) => largestLoss(name, shapes, shift)), xi, goal, account);
      const found = (aim.below(rho) ? [aim, rho] : [rho]).find((goal) => repeated.some(kept(goal)));
      account.proved(claim, found);
      return { found: found ?? rho, exact: false };
    }
  } else if (!Number(optional(privacy, "delta", 0n))) {
    const epsilon = real(privacy.epsilon);
    const found = largestOf(cases, name, shapes);
    const loss = found && sampled ? ln(one.plus(rate.times(exp(found).minus(one)))) : found;
    const all = loss && loss.times(real(rounds));
    account.proved(`privacy loss at most ${shown(privacy.epsilon)}`, all && all.atMost(epsilon.times(ROUND)), all && left(all, epsilon));
    return { found: all, exact: cases.length === 1 };
  } else {
    const [epsilon, delta] = [real(privacy.epsilon), real(privacy.delta)];
    const asked = { name, shapes, rounds, rate, epsilon, delta, account };
    const found = leastConsumed(asked, cases, aim);
    account.proved(`delta at most ${shown(privacy.delta)} at epsilon = ${shown(privacy.epsilon)}`, found.atMost(delta), left(found, delta));
    return { found, exact: cases.length === 1 && isClosed(asked, cases[0]) };
  }
}

const left = (found, budget) => difference(found.toFraction(), budget.toFraction());

// The least over the cases of the sum of all coordinates' largest losses; null where they have no end.
function largestOf(cases, name, shapes) {
  const sums = cases.map((moved) => {
    const losses = moved.map(({ shift, count }) => [largestLoss(name, shapes, shift), real(count)]);
    return losses.every(([loss]) => loss) ? totalOf(losses.map(([loss, count]) => loss.times(count))) : null;
  });
  const finite = sums.filter((loss) => loss);
  return finite.length ? finite.reduce(least) : null;
}

// The largest privacy loss at a shift, in units of the scale; null where it has no end.
function largestLoss(name, shapes, shift) {
  if (name === "laplace" || name === "logistic" || (name === "gennorm" && !shapes[0].minus(one).sign)) return shift;
  if (name === "dlaplace") return shapes[0].times(shift);
  return name === "staircase" && shift.atMost(one) ? shapes[0] : null;
}

// Whether a law of the family has these shapes: it is log-concave then, or a staircase.
function proper(name, shapes) {
  if (COSTS[name].length !== shapes.length + 1) return false;
  if (name === "staircase") return shapes[0].sign > 0 && shapes[1].sign >= 0 && shapes[1].atMost(one);
  if (name === "osgt" || name === "flipped_huber") return shapes[0].sign >= 0;
  return name === "gennorm" ? one.atMost(shapes[0]) : shapes.every((shape) => shape.sign > 0);
}
