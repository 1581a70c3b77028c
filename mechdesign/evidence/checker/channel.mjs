// Metric-private channels: rows, distances, privacy of all pairs, value, equalities, and the bound by weak duality.
//
// A channel answers item x with report y with probability w[x][y] over the row's total. It is private if w[x][y] ≤ e^{α d(x, z)}
// w[z][y] for all x, z, y. For multipliers λ ≥ 0 of these constraints and ν of the equalities Σ_y C[x, y] h(y) = g(x), no private
// channel has a loss below Σ_x min_y (π_x ℓ(x, y) + Σ_z λ_xzy − Σ_z e^{α d(z, x)} λ_zxy − ν_x · h(y)) + ν · g.

import { Refused } from "./errors.mjs";
import { total } from "./quantizer_laws.mjs";
import { double, Fraction, largest, ONE, ratio, rational, smallest, sum, ZERO } from "./rational.mjs";
import { difference, expBounds, flat, NEAR } from "./reading.mjs";
import { spaceDistances } from "./spaces.mjs";
import { shown, shownDouble } from "./words.mjs";

const CLOSE = 1e-12;

export function channel(result, account) {
  const { design, mechanism: law } = result;
  const proofs = Object.fromEntries(result.proofs.map((proof) => [proof[""], proof]));
  const distances = proofs["channel-proof"].distances;
  const { weights } = law;
  const alpha = rational(design.alpha);
  const whole = total(weights[0]);
  const reports = typeof design.loss === "string" ? weights.length : design.loss[0].length;
  const size = weights.length;
  account.agrees("reports are the design's", weights.every((row) => row.length === reports));
  account.agrees("the matrix shown is the channel", matrixFits(weights, law.matrix, whole));
  account.agrees("rows sum to 1", weights.every((row) => total(row) === whole && row.every((w) => w >= 0n)));
  account.agrees("the channel is on the design's space", spelled(law.space) === spelled(design.space));
  const sides = design.space.shape;
  account.agrees("the sides of the space are of its points", !sides.length || sides.reduce((a, b) => a * b, 1n) === BigInt(size));
  distancesFit(design.space, distances, size, account);
  account.agrees("distances are not negative", distances.every((row) => row.every((d) => d >= 0)));

  const powers = new Map();
  for (const d of flat(distances)) if (!powers.has(d)) powers.set(d, expBounds(alpha.times(rational(d)).reduced()));
  const slack = privacySlack(weights, distances, powers);
  account.proved(`privacy of all pairs at alpha = ${shownDouble(alpha.toNumber())}`, slack >= 0, slack);

  const given = design.prior !== null && design.prior.length > 0;
  const prior = given ? design.prior.map(rational) : weights.map(() => ONE);
  account.agrees("the prior is one", prior.length === size && prior.every((p) => p.sign >= 0));
  const losses = lossesOf(design.loss, distances, size);
  if (losses.length !== prior.length) throw new Refused("losses of other items");
  const mass = sum(prior);
  const costs = losses.map((row, x) => row.map((c) => prior[x].times(rational(c)).over(mass).reduced()));
  const spent = weights.flatMap((row, x) => row.map((w, y) => (y < costs[x].length ? costs[x][y].times(new Fraction(w)) : ZERO)));
  const value = sum(spent).over(new Fraction(whole)).reduced();
  const stated = rational(result.value);
  const room = ONE.plus(rational(NEAR).over(new Fraction(1000n)));
  const holds = value.atMost(stated) && stated.atMost(value.times(room));
  account.proved(`the value is ${shown(result.value)}`, holds, difference(value, stated));

  const asked = equalities(design, size);
  if (asked !== null) {
    account.agrees("every report has its values", asked.query.length === reports);
    const off = largestOff(weights, whole, asked);
    const allowed = rational(1e-6).times(largest(asked.query.flat().map((h) => h.absolute())));
    account.proved("the equalities hold", off.atMost(allowed), difference(off, allowed));
  }
  if (result.lower_bound === null) return;
  const dual = proofs["channel-dual"];
  if (dual === undefined) throw new Refused("a lower bound without multipliers");
  if ((dual.free === null) !== (asked === null)) throw new Refused("multipliers of equalities that are not there, or none of those that are");
  const bound = rational(result.lower_bound);
  const found = dualValue(dual, costs, distances, powers, asked);
  account.proved(`no channel between the points costs less than ${shown(result.lower_bound)}`, bound.atMost(found), difference(bound, found));
}

// Whether all pairs of two lists are so; lists of which one is longer are refused, once their common part is.
function together(list, others, holds) {
  if (!list.slice(0, others.length).every((x, k) => holds(x, others[k]))) return false;
  if (list.length !== others.length) throw new Refused("tables of different sizes");
  return true;
}

function matrixFits(weights, matrix, whole) {
  const near = (w, p) => Math.abs(ratio(w, whole) - double(p)) <= CLOSE * ratio(w, whole);
  return together(weights, matrix, (row, shownRow) => together(row, shownRow, near));
}

// A value of the file, spelled out: the same text for the same value alone.
export function spelled(value) {
  if (Array.isArray(value)) return `[${value.map(spelled).join(", ")}]`;
  if (value instanceof Fraction) return `${value.n}/${value.d}`;
  if (value !== null && typeof value === "object") return `{${Object.entries(value).map(([key, child]) => `${key}: ${spelled(child)}`).join(", ")}}`;
  return shown(value);
}

function distancesFit(space, distances, size, account) {
  const given = spaceDistances(space, account);
  if (given.some((row, k) => k < distances.length && row.length !== distances[k].length)) throw new Refused("tables of different sizes");
  const pairs = distances.slice(0, given.length).flatMap((row, x) => row.map((d, y) => Math.abs(double(given[x][y]) - double(d))));
  const near = Math.max(...pairs) <= CLOSE * Math.max(...flat(given).map(double));
  account.agrees("the distances are those of the space", near && given.length === distances.length && given.length === size);
}

// By how much e^{α d} w[z][y] is above w[x][y], relative to it, where it is least so.
function privacySlack(weights, distances, powers) {
  let least = Infinity;
  weights.forEach((row, x) => {
    weights.forEach((other, z) => {
      if (x === z) return;
      const [{ n: up, d: down }] = powers.get(distances[x][z]);
      row.slice(0, other.length).forEach((p, y) => {
        const [low, high] = [p * down, up * other[y]];
        const slack = low > high ? -ratio(low - high, low) : low ? Math.min(ratio(high - low, low), Number.MAX_VALUE) : Infinity;
        least = Math.min(least, slack);
      });
    });
  });
  return least;
}

function lossesOf(loss, distances, size) {
  if (typeof loss !== "string") return loss;
  const items = Array.from({ length: size }, (_, x) => x);
  if (loss === "error") return items.map((x) => items.map((y) => (x === y ? 0 : 1)));
  if (loss === "metric") return distances;
  if (loss === "squared") return distances.map((row) => row.map((d) => (typeof d === "bigint" ? d * d : d * d)));
  throw new Refused("a loss of no such name");
}

// What the answers' means are to be: g of the items and h of the reports.
function equalities(design, size) {
  if (design.unbiased === null && design.decoder === null) return null;
  const items = Array.from({ length: size }, (_, x) => x);
  const [goal, query] = design.unbiased ?? [items.map((x) => items.map((y) => (x === y ? 1 : 0))), design.decoder];
  const vectors = (part) => part.map((row) => flat([row]).map(rational));
  return { goal: vectors(goal), query: vectors(query) };
}

const dot = (v, w) => sum(v.slice(0, w.length).map((x, k) => x.times(w[k])));

function largestOff(weights, whole, { goal, query }) {
  const columns = Math.min(...query.map((h) => h.length));
  const offs = weights.flatMap((row, x) => {
    if (x >= goal.length) return [];
    if (goal[x].length !== columns) throw new Refused("means of other lengths than what they are to be");
    return goal[x].map((g, i) => {
      const mean = dot(query.map((h) => h[i]), row.map((w) => new Fraction(w))).over(new Fraction(whole));
      return mean.minus(g).absolute().reduced();
    });
  });
  return largest(offs);
}

function place(list, index) {
  const k = Number(index);
  const found = list[k < 0 ? list.length + k : k];
  if (typeof index !== "bigint" || found === undefined) throw new Refused("multipliers of items or reports that are not there");
  return found;
}

function dualValue(dual, costs, distances, powers, asked) {
  const terms = costs.map((row) => row.map((cost) => [cost]));
  if (dual.triples.length !== dual.multipliers.length) throw new Refused("multipliers without a constraint");
  dual.triples.forEach((triple, k) => {
    if (triple.length !== 3) throw new Refused("constraints that are no triples");
    const [x, z, y] = triple;
    const multiplier = rational(dual.multipliers[k]);
    const rate = powers.get(place(place(distances, x), z))[1];
    const [plus, minus] = [place(place(terms, x), y), place(place(terms, z), y)];
    if (multiplier.sign <= 0) return; // multipliers are not negative
    plus.push(multiplier);
    minus.push(rate.times(multiplier).negative());
  });
  let offset = ZERO;
  if (asked !== null) {
    const free = dual.free.map((row) => row.map(rational));
    if (free.length !== asked.goal.length) throw new Refused("multipliers of other items");
    offset = sum(free.map((f, x) => dot(f, asked.goal[x])));
    free.forEach((f, x) => (terms[x] ?? []).forEach((cost, y) => y < asked.query.length && cost.push(dot(f, asked.query[y]).negative())));
  }
  return offset.plus(sum(terms.map((row) => smallest(row.map((cost) => sum(cost).reduced())))));
}
