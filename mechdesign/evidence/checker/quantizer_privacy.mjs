// Privacy of quantizers: one ratio for all inputs, or ratios that depend on how far apart two inputs are.
//
// Rows are affine between knots (quantizer_laws.mjs).
//
// Pure: max p ≤ e^ε min p for every output, over all rows.
//
// Metric, on the continuum, d = |x − x'|: an affine function is steepest, relative to itself, where it is smallest. So
// p(x, i) ≤ e^{ε|x − x'|} p(x', i) holds for all inputs if and only if |Δp| ≤ ε Δx min(p) at both ends of every segment, and the
// rows are continuous.
//
// Metric, between the inputs of a grid, d = |x − x'| or |x − x'|²: for x < y < z, d(x, z) ≥ d(x, y) + d(y, z), so that ratios of
// neighbouring inputs multiply to ratios within those of far ones: neighbours are all that is compared.
//
// Approximate, between the inputs of a grid: Σ_i [p(x, i) − e^ε p(x', i)]₊ ≤ δ for all pairs. It is no more than δ for any pair if
// no output's largest probability is above e^ε times its smallest.

import { NotCovered } from "./errors.mjs";
import { atKnots, continuous } from "./quantizer_laws.mjs";
import { bitLength, Fraction, magnitude, maximum, minimum, ratio, rational, smaller } from "./rational.mjs";
import { difference, expBounds, pairwise } from "./reading.mjs";
import { shownDouble } from "./words.mjs";

const LARGEST = new Fraction(700n); // a ratio of e^700 is as good as none

// Add the claim of privacy to the account.
export function quantizerPrivacy(design, law, account) {
  const { privacy } = design;
  const kind = privacy[""];
  const epsilon = rational(privacy.epsilon);
  const written = shownDouble(epsilon.toNumber());
  const entries = law.rows.reduce((count, row) => count + row.length, 0);
  account.takes(2 * entries, bitLength(law.common) + 320);
  if (kind === "pure-dp") {
    const slack = ratioSlack(law.rows, epsilon);
    account.proved(`privacy loss at most ${written}`, slack >= 0, slack);
  } else if (kind === "metric-dp" && !["absolute", "squared"].includes(privacy.metric)) {
    throw new NotCovered(`the metric ${String(privacy.metric).slice(0, 40)}, a function of the user's`);
  } else if (kind === "metric-dp" && design.inputs === null) {
    const slack = continuous(law) && privacy.metric === "absolute" ? steepestSlack(law, epsilon) : -Infinity;
    account.proved(`privacy loss at most ${written} |x - x'| between all inputs`, slack >= 0, slack);
  } else if (kind === "metric-dp") {
    account.takes(4000 * law.knots.length); // an exponential for each pair of neighbours
    const unit = privacy.metric === "squared" ? "|x - x'|²" : "|x - x'|";
    const slack = continuous(law) ? neighbourSlack(law, epsilon, privacy.metric) : -Infinity;
    account.proved(`privacy loss at most ${written} ${unit} between the inputs of the grid`, slack >= 0, slack);
  } else if (kind === "approximate-dp") {
    const delta = rational(privacy.delta);
    const found = continuous(law) ? largestExcess(law, epsilon, account) : null;
    const claim = `privacy (${written}, ${shownDouble(delta.toNumber())}) between the inputs of the grid`;
    account.proved(claim, found !== null && found.atMost(delta), found === null ? null : difference(found, delta));
  } else {
    throw new NotCovered(`quantizers with ${kind}`);
  }
}

// By how much power · least is above most, relative to most: about what is left of the privacy loss. Negative where it is below.
const slackOf = (power, least, most) => ratio(power.n * least - most * power.d, magnitude(most) * power.d || 1n);

function ratioSlack(rows, epsilon) {
  const [power] = expBounds(smaller(epsilon, LARGEST));
  const [most, least] = extremes(rows);
  return Math.min(...most.map((p, k) => slackOf(power, least[k], p)));
}

// The largest and the smallest probability of each output.
function extremes(rows) {
  const [most, least] = [[...rows[0]], [...rows[0]]];
  for (const row of new Set(rows)) {
    row.forEach((p, k) => {
      if (p > most[k]) most[k] = p;
      else if (p < least[k]) least[k] = p;
    });
  }
  return [most, least];
}

function segmentSlack({ knots, rows }, slack) {
  const found = pairwise(knots).map(([x, y], k) => {
    const [start, end] = [rows[2 * k], rows[2 * k + 1]];
    return Math.min(...start.slice(0, end.length).map((p, i) => slack(y.minus(x), p, end[i])));
  });
  return Math.min(...found);
}

const steepestSlack = (law, epsilon) =>
  segmentSlack(law, (width, p, q) => slackOf(epsilon.times(width), minimum(p, q), magnitude(p - q)));

function neighbourSlack(law, epsilon, metric) {
  const powers = new Map();
  const power = (width) => {
    const far = metric === "squared" ? width.times(width) : width;
    const x = smaller(epsilon.times(far), LARGEST).reduced();
    const name = `${x.n}/${x.d}`;
    if (!powers.has(name)) powers.set(name, expBounds(x)[0]);
    return powers.get(name);
  };
  return segmentSlack(law, (width, p, q) => slackOf(power(width), minimum(p, q), maximum(p, q)));
}

// The largest Σ_i [p(x, i) − e^ε p(x', i)]₊ of two rows.
function largestExcess(law, epsilon, account) {
  const [power] = expBounds(smaller(epsilon, LARGEST));
  const rows = atKnots(law);
  const [most, least] = extremes(rows);
  const used = most.map((p, k) => (p * power.d > power.n * least[k] ? k : -1)).filter((k) => k >= 0);
  if (!used.length) return new Fraction(0n);
  account.takes(law.knots.length ** 2 * used.length, bitLength(law.common) + 320);
  const lowered = rows.map((row) => used.map((k) => row[k] * power.n));
  const raised = rows.map((row) => used.map((k) => row[k] * power.d));
  let largest = 0n;
  for (const row of raised) {
    for (const other of lowered) {
      let excess = 0n;
      row.forEach((p, k) => (excess += p > other[k] ? p - other[k] : 0n));
      largest = maximum(largest, excess);
    }
  }
  return new Fraction(largest, power.d * law.common);
}
