// Local reports for linear questions: a table of weights or sets of categories, their privacy, the decoder's variance, and lower bounds.
//
// The theorems are those of mechdesign/verifier/local_report.py. A person of category x sends y with probability Q(y|x); all variances are those of
// G, the Gram matrix of W(I − 11ᵀ/k). Arithmetic is that of BigInt; doubles give inverses and roots, whose error is bounded exactly.

import { spelled } from "./channel.mjs";
import { Refused } from "./errors.mjs";
import { total } from "./quantizer_laws.mjs";
import { bitLength, ceilDivide, double, floorDivide, Fraction, largest, lcm, magnitude, ONE, rational, smallest, ZERO } from "./rational.mjs";
import { expBounds, flat } from "./reading.mjs";
import { shown } from "./words.mjs";

const ALL_RAYS = 16;
const FIXED_BITS = 128n;
const SETS_UNIT = 1n << 256n;

const top = (list) => list.reduce((a, b) => (a < b ? b : a));
const bottom = (list) => list.reduce((a, b) => (b < a ? b : a));
const transposed = (rows) => rows[0].map((_, j) => rows.map((row) => row[j]));
const range = (n) => Array.from({ length: n }, (_, i) => i);
const lowest = (n, d = 1n) => new Fraction(n, d).reduced();
const plus = (list) => list.reduce((a, b) => a.plus(b).reduced(), ZERO);

function inner(v, w) {
  let found = 0n;
  for (let i = 0; i < Math.min(v.length, w.length); i++) found += v[i] * w[i];
  return found;
}

function times(one, other) {
  const columns = transposed(other);
  return one.map((row) => columns.map((column) => inner(row, column)));
}

// A matrix as integers over a power of two.
function whole(matrix) {
  const rows = matrix.map((row) => row.map(rational));
  const bits = rows.flat().reduce((most, { d }) => Math.max(most, bitLength(d) - 1), 0);
  return [rows.map((row) => row.map(({ n, d }) => n * ((1n << BigInt(bits)) / d))), BigInt(bits)];
}

export function localReport(result, account) {
  const { design, mechanism: law } = result;
  const proofs = Object.fromEntries(result.proofs.map((proof) => [proof[""], proof]));
  const bounds = Object.keys(proofs).filter((kind) => kind !== "linear-proof");
  const known = bounds.length < 2 && bounds.every((kind) => ["linear-bound", "histogram-bound"].includes(kind));
  if (!["linear-report", "subset-report"].includes(law[""]) || !("linear-proof" in proofs) || !known)
    throw new Refused("a law or proofs of something else than local reports");
  const [worst, epsilon] = [design.data === "worst", design.privacy.epsilon];
  account.agrees("the answers are those of the design", spelled(law.workload) === spelled(design.workload));
  (law[""] === "subset-report" ? subsets : tables)(result, account);
  if (result.lower_bound === null) return;
  const claim = `no unbiased local report costs less than ${shown(result.lower_bound)}`;
  if (!bounds.length) {
    account.claimed(claim);
    return;
  }
  const [diagonal, sums, below] = margins(law.workload, account);
  const constant = worst ? ZERO : lowest(total(diagonal), below * BigInt(diagonal.length));
  let bound;
  if (bounds[0] === "histogram-bound") {
    bound = belowHistograms(law.workload, diagonal, sums, below, epsilon, account);
  } else {
    const [found, scale] = centred(...gram(law.workload, account));
    bound = belowAll(proofs["linear-bound"], found, scale, epsilon, worst, account);
  }
  account.proved(claim, rational(result.lower_bound).atMost(bound.plus(constant)));
}

const privately = (epsilon) => `every report at most e^${shown(epsilon)} times likelier for one category than for another`;

function tables(result, account) {
  const { design, mechanism: law } = result;
  const worst = design.data === "worst";
  if (law.prior !== null && !worst) throw new Refused("a decoder for other data than the design's");
  const rows = table(law, account);
  account.agrees("no more outputs than asked for", design.outputs === null || rows[0].length <= design.outputs);
  const [low] = expBounds(rational(design.privacy.epsilon));
  const columns = transposed(rows);
  account.proved(privately(design.privacy.epsilon), columns.every((column) => top(column) * low.d <= low.n * bottom(column)));
  const [full, below] = gram(law.workload, account);
  const [found, scale] = centred(full, below);
  const seen = squares(rows, law.prior, found, scale, account);
  const size = BigInt(rows.length);
  const entries = found.map((row, x) => lowest(row[x], scale));
  const constant = lowest(total(full.map((row, x) => row[x])), below * size);
  const costs = seen.map((square, x) => square.minus(entries[x]).reduced());
  const cost = worst ? largest(costs) : plus(costs).over(new Fraction(size)).plus(constant);
  account.proved("unbiased for every data set", true);
  account.proved(`value at most ${shown(result.value)}`, cost.atMost(rational(result.value)));
}

function subsets(result, account) {
  const { design, mechanism: law } = result;
  const [high, low] = levels(law);
  const [growth] = expBounds(rational(design.privacy.epsilon));
  const size = counts(law.workload);
  if (design.outputs !== null) {
    account.takes(size * law.sizes.length, size);
    const number = total(law.sizes.map((s) => binomial(BigInt(size), s)));
    account.agrees("no more outputs than asked for", number <= design.outputs);
  }
  account.proved(privately(design.privacy.epsilon), high * growth.d <= growth.n * low);
  const k = BigInt(size);
  const [diagonal, sums, below] = margins(law.workload, account);
  const whole_ = total(sums);
  const entries = diagonal.map((g, x) => new Fraction(k * (k * g - 2n * sums[x]) + whole_, below * k * k));
  const [least, most] = [smallest(entries), largest(entries)].map((g) => g.reduced());
  const trace = lowest(total(entries.map(({ n }) => n)), below * k * k);
  const [scale, ends] = momentsOfSets(law, size, [least, most], trace, account);
  let cost = largest([ends[0].minus(least), ends[1].minus(most)]);
  if (design.data !== "worst") {
    const constant = lowest(total(diagonal), below * k);
    cost = trace.over(scale).minus(trace.over(new Fraction(k))).plus(constant);
  }
  account.proved("unbiased for every data set", true);
  account.proved(`value at most ${shown(result.value)}`, cost.atMost(rational(result.value)));
}

const counts = (workload) => workload.blocks[0].reduce((product, part) => product * Number(part.size), 1);

function binomial(n, s) {
  let found = s <= n ? 1n : 0n;
  for (let i = 0n; i < s && found; i++) found = (found * (n - i)) / (i + 1n);
  return found;
}

function levels(law) {
  if (law.levels.length !== 2 || !(law.levels[0] > law.levels[1] && law.levels[1] > 0n))
    throw new Refused("levels that are not two, the first larger");
  return law.levels;
}

// A lower bound of a, and upper bounds of Σ_y Q(y|x)|v_y|² of categories with these entries of G.
function momentsOfSets(law, n, entries, trace, account) {
  const { sizes, shares } = law;
  const [[high, low], size] = [levels(law), BigInt(n)];
  const good = sizes.length && shares.length === sizes.length && bottom(shares) > 0n && sizes[0] > 0n;
  if (!good || sizes[0] >= size || sizes[sizes.length - 1] > size || sizes.slice(1).some((b, i) => sizes[i] >= b))
    throw new Refused("sizes of sets that are none, or shares of other sizes");
  account.divides(20 * sizes.length, 4 * (bitLength(high) + bitLength(top(shares)) + bitLength(size)));
  const people = total(shares);
  let scale = 0n;
  const found = entries.map(() => 0n);
  sizes.forEach((s, i) => {
    const all = s * high + (size - s) * low;
    const square = new Fraction(shares[i] * (size * (high - low)) ** 2n, people * all * all);
    scale += (square.n * s * (size - s) * SETS_UNIT) / (square.d * size * (size - 1n));
    const held = new Fraction(s * high, all);
    const other = new Fraction(s).minus(held).over(new Fraction(size - 1n));
    const pair = held.times(new Fraction(s - 1n, size - 1n));
    const two = size > 2n ? other.times(new Fraction(s - 1n)).minus(pair).over(new Fraction(size - 2n)) : ZERO;
    const own = held.minus(other).plus(two.minus(pair).times(new Fraction(2n))).reduced();
    entries.forEach((g, e) => {
      const form = own.times(g).plus(other.minus(two).times(trace)).times(square).times(new Fraction(SETS_UNIT));
      found[e] += ceilDivide(form.n, form.d);
    });
  });
  if (scale <= 0n) throw new Refused("sets by which counts cannot be told");
  return [lowest(scale, SETS_UNIT), found.map((each) => lowest(each * SETS_UNIT, scale * scale))];
}

function sameShapes(workload) {
  const shapes = workload.blocks.map((block) => block.map((part) => part.size).join());
  if (shapes.some((shape) => shape !== shapes[0])) throw new Refused("blocks of a workload on other counts");
}

// Diagonal and row sums of WᵀW over a common denominator, without the matrix where W has kinds of queries.
function margins(workload, account) {
  const size = counts(workload);
  sameShapes(workload);
  const found = workload.blocks.map((block) => {
    account.takes(4 * size * block.length, 200);
    return block.reduce(
      ([diagonal, sums, below], part) => {
        const [squaresOf, sumsOf, unit] = partMargins(part, account);
        const both = (list, other) => list.flatMap((a) => other.map((b) => a * b));
        return [both(diagonal, squaresOf), both(sums, sumsOf), below * unit];
      },
      [[1n], [1n], 1n],
    );
  });
  const shared = lcm(found.map(([, , below]) => below));
  const added = (i) => range(size).map((x) => total(found.map((each) => each[i][x] * (shared / each[2]))));
  return [added(0), added(1), shared];
}

function partMargins(part, account) {
  const n = part.size;
  const places = range(Number(n)).map((i) => BigInt(i + 1));
  if (part.kind === "matrix") {
    account.takes(4 * part.matrix.length * Number(n), 200);
    if (!part.matrix.length || part.matrix.some((row) => row.length !== Number(n))) throw new Refused("queries on other counts");
    const [rows, bits] = whole(part.matrix);
    const sums = rows.map(total);
    const columns = transposed(rows);
    return [columns.map((c) => inner(c, c)), columns.map((c) => inner(c, sums)), 4n ** bits];
  }
  if (part.kind === "identity" || part.kind === "total")
    return [places.map(() => 1n), places.map(() => (part.kind === "identity" ? 1n : n)), 1n];
  if (part.kind === "prefix") return [places.map((i) => n + 1n - i), places.map((i) => ((n + 1n - i) * (n + i)) / 2n), 1n];
  return [places.map((i) => i * (n + 1n - i)), places.map((i) => (i * (n + 1n - i) * (n + 1n)) / 2n), 1n];
}

function belowHistograms(workload, diagonal, sums, below, epsilon, account) {
  const kinds = workload.blocks.map((block) => new Set(block.filter((part) => part.size > 1n).map((part) => part.kind)));
  const only = (kind) => (set) => set.size === 1 && set.has(kind);
  if (!kinds.some(only("identity")) || !kinds.every((set) => only("identity")(set) || only("total")(set)))
    throw new Refused("a histogram's bound for another question");
  const size = BigInt(diagonal.length);
  const step = stepOf(expBounds(rational(epsilon))[1]);
  account.divides(diagonal.length, 400);
  let most = ZERO;
  for (let s = 1n; s < size; s++) {
    const each = new Fraction(s * (size - s) * step.d * step.d, (s * step.n + size * step.d) ** 2n);
    if (most.below(each)) most = each;
  }
  most = most.times(step).times(step).times(new Fraction(size));
  const trace = lowest(size * total(diagonal) - total(sums), below * size);
  return trace.times(new Fraction(size - 1n)).over(most).minus(trace.over(new Fraction(size)));
}

// A number above e^ε − 1 with 2⁶⁴ below.
const stepOf = (growth) => new Fraction(ceilDivide(growth.n << 64n, growth.d) - (1n << 64n), 1n << 64n);

function table(law, account) {
  const { weights: rows, prior } = law;
  const size = counts(law.workload);
  if (rows.length !== size || new Set(rows.map((row) => row.length)).size !== 1 || size < 2) throw new Refused("a table of another size than the workload");
  if (prior !== null && (prior.length !== size || prior.some((p) => p <= 0))) throw new Refused("a prior that is none");
  account.takes(size * rows[0].length, 200);
  account.agrees("rows sum to 1", new Set(rows.map(total)).size === 1 && rows.every((row) => row.every((w) => w >= 0n)));
  if (transposed(rows).some((column) => total(column) <= 0n)) throw new Refused("a report that nobody sends");
  return rows;
}

function gram(workload, account) {
  const size = counts(workload);
  sameShapes(workload);
  let [sum, common] = [range(size).map(() => range(size).map(() => 0n)), 1n];
  for (const block of workload.blocks) {
    account.takes(size * size * block.length, 200);
    let [found, below] = [[[1n]], 1n];
    for (const part of block) {
      const [own, unit] = partGram(part, account);
      found = found.flatMap((row) => own.map((other) => row.flatMap((a) => other.map((b) => a * b))));
      below *= unit;
    }
    const shared = lcm([common, below]);
    sum = sum.map((row, i) => row.map((a, j) => a * (shared / common) + found[i][j] * (shared / below)));
    common = shared;
  }
  return [sum, common];
}

function partGram(part, account) {
  const { kind, size } = part;
  const places = range(Number(size)).map(BigInt);
  if (kind === "matrix") {
    account.takes(part.matrix.length * places.length ** 2, 200);
    if (!part.matrix.length || part.matrix.some((row) => row.length !== places.length)) throw new Refused("queries on other counts");
    const [rows, bits] = whole(part.matrix);
    return [times(transposed(rows), rows), 4n ** bits];
  }
  const entry = {
    identity: (i, j) => (i === j ? 1n : 0n),
    total: () => 1n,
    prefix: (i, j) => size - (i < j ? j : i),
    ranges: (i, j) => ((i < j ? i : j) + 1n) * (size - (i < j ? j : i)),
  }[kind];
  return [places.map((i) => places.map((j) => entry(i, j))), 1n];
}

function centred(found, common) {
  const size = BigInt(found.length);
  const sums = found.map(total);
  const every = total(sums);
  return [found.map((row, i) => row.map((g, j) => size * (size * g - sums[i] - sums[j]) + every)), common * size * size];
}

// An inverse in doubles, by elimination with row exchanges; rows are scaled first.
function inverse(matrix) {
  const scale = matrix.map((row) => Math.max(...row.map(Math.abs)) || 1);
  const rows = matrix.map((row, i) => [...row.map((x) => x / scale[i]), ...matrix.map((_, j) => (i === j ? 1 : 0))]);
  rows.forEach((_, k) => {
    let pivot = k;
    for (let i = k; i < rows.length; i++) if (Math.abs(rows[i][k]) > Math.abs(rows[pivot][k])) pivot = i;
    [rows[k], rows[pivot]] = [rows[pivot], rows[k]];
    if (rows[k][k] === 0) throw new Refused("a matrix that has no inverse");
    const head = rows[k].map((x) => x / rows[k][k]);
    rows[k] = head;
    rows.forEach((row, i) => {
      if (i !== k && row[k]) rows[i] = row.map((x, j) => x - row[k] * head[j]);
    });
  });
  return rows.map((row) => row.slice(matrix.length).map((x, j) => x / scale[j]));
}

// Upper bounds of Σ_y Q(y|x)|v_y|² for every category, v of W(I − 11ᵀ/k); refused where M is not shown to be invertible.
function squares(rows, prior, found, scale, account) {
  const [n, unit, all] = [rows.length, 1n << FIXED_BITS, total(rows[0])];
  const size = BigInt(n);
  account.takes(n * n * (2 * rows[0].length + 9 * n), 260);
  const chances = prior === null ? rows.map(() => 1n) : whole([prior])[0][0];
  const people = total(chances);
  // fixed point: entries of u are low by less than one unit, of M by less than two, as rows of Q sum to 1
  const columns = transposed(rows).map((column) => {
    const below = inner(chances, column);
    return column.map((w) => floorDivide(w * people * unit, below));
  });
  const spread = transposed(columns);
  const moments = rows.map((row) => spread.map((other) => floorDivide(inner(row, other), all)));
  const doubles = moments.map((row) => row.map((m) => new Fraction(m, unit).toNumber()));
  let held = inverse(doubles).map((row) => row.map((x) => BigInt(Math.trunc(x * 2 ** 60)) << (FIXED_BITS - 60n)));
  for (let step = 0; step < 3; step++) {
    const more = times(held, residual(moments, held, unit));
    held = held.map((row, i) => row.map((a, j) => a + (more[i][j] >> FIXED_BITS)));
  }
  const norm = new Fraction(total(flat(held).map(magnitude)), unit);
  const left = total(flat(residual(moments, held, unit)).map(magnitude)) + size * size;
  const off = new Fraction(left, unit).plus(new Fraction(2n * size, unit).times(norm)).reduced();
  if (!off.below(ONE)) throw new Refused("a table by which counts cannot be told");
  const longest = new Fraction(top(columns.map(total)) + size, unit);
  const weight = new Fraction(total(found.map((row, x) => row[x])), scale).plus(ONE); // at least |W|
  const lost = norm.times(off).over(ONE.minus(off)).times(longest).plus(norm.times(new Fraction(size, unit)));
  const error = new Fraction(weight.times(lost).times(new Fraction(unit)).ceil(), unit);
  const form = times(times(transposed(held), found), held);
  const each = columns.map((column) => inner(column, form.map((line) => inner(line, column))));
  return rows.map((row) => {
    const mean = lowest(inner(row, each), all * scale * unit ** 4n);
    return mean.plus(error.times(mean.plus(ONE)).times(new Fraction(2n))).plus(error.times(error)).reduced();
  });
}

function residual(moments, held, unit) {
  return times(moments, held).map((row, i) => row.map((x, j) => (i === j ? unit : 0n) - (x >> FIXED_BITS)));
}

// The bound of the mean variance over the prior.
function belowAll(proof, found, scale, epsilon, worst, account) {
  const n = found.length;
  if (proof.prices.length !== n || proof.inverse.length !== n || proof.inverse.some((row) => row.length !== n))
    throw new Refused("multipliers of another number of categories");
  account.takes(2 * n ** 3, 260);
  const [[prices], priceBits] = whole([proof.prices]);
  const [near, bits] = whole(proof.inverse);
  const good = worst === (proof.prior !== null);
  const prior = !good ? [] : worst ? whole([proof.prior])[0][0] : prices.map(() => 1n);
  if (prior.length !== n || bottom(prior) < 0n || top(prior) === 0n)
    throw new Refused("a prior that is none, or of other data than the design's");
  const [form, unit] = [times(times(transposed(near), found), near), 4n ** bits * scale];
  let cost = new Fraction(total(prices), 1n << priceBits);
  const growth = expBounds(rational(epsilon))[1];
  if (proof.products !== null) {
    if (worst) throw new Refused("a matrix inequality for the worst case");
    cost = cost.plus(paid(proof, form.map((row) => row.map((x) => lowest(x, unit))), growth, account));
  } else {
    const two = (2n * total(prior)) << priceBits;
    const rows = form.map((row, i) => row.map((y, j) => (prices[i] * prior[j] + prices[j] * prior[i]) * unit - two * y));
    account.proved("the prices of all rays are enough", noRayBelow(rows, growth, account));
  }
  if (cost.sign <= 0) throw new Refused("prices that are not positive");
  const trace = lowest(total(found.map((row, i) => inner(row, near.map((line) => line[i])))), scale << bits);
  const lost = lowest(total(prior.map((p, x) => p * found[x][x])), total(prior) * scale);
  return trace.times(trace).over(cost).minus(lost);
}

// Whether uᵀ(rows)u ≥ 0 for all u of 1 and ρ that are not constant: in the order of Gray, one entry changes at a time.
function noRayBelow(rows, growth, account) {
  const size = rows.length;
  if (size > ALL_RAYS) throw new Refused("rays of so many categories are not listed");
  account.takes(2 ** size * (size + 4), 300);
  const low = 1n << 64n;
  const step = ceilDivide(growth.n * low, growth.d) - low;
  let slopes = rows.map((row) => low * total(row));
  let form = low * total(slopes);
  const favoured = new Set();
  for (let number = 1; number < 2 ** size; number++) {
    const i = 31 - Math.clz32(number & -number);
    const move = favoured.has(i) ? -step : step;
    form += 2n * move * slopes[i] + move * move * rows[i][i];
    slopes = slopes.map((slope, j) => slope + move * rows[i][j]);
    if (!favoured.delete(i)) favoured.add(i);
    if (favoured.size < size && form < 0n) return false;
  }
  return true;
}

// What the slack of the matrix inequality costs; a claim says whether the inequality holds.
function paid(proof, form, growth, account) {
  const size = form.length;
  const slack = rational(proof.slack);
  const step = stepOf(growth);
  const [width, high] = step.below(ONE) ? [step, ONE] : [ONE, step];
  const parts = proof.products.map((part) => part.map((row) => row.map(rational)));
  if (parts.length !== 3 || parts.some((part) => part.length !== size || part.some((row) => row.length !== size)))
    throw new Refused("products of another number of categories");
  const own = parts.some((part) => part.some((row, i) => row[i].sign !== 0));
  if (own || flat(parts).some((x) => x.sign < 0) || slack.sign < 0)
    throw new Refused("products that are negative, or of one category with itself");
  const [prices, square] = ["prices", "squares"].map((name) => (proof[name] ?? []).map(rational));
  if (square.length !== size) throw new Refused("squares of another number of categories");
  account.divides(20 * size * size, 200);
  account.takes(size ** 3, 100);
  const terms = range(size + 1).map(() => range(size + 1).map(() => []));
  const add = (i, j, amount) => {
    const half = amount.over(new Fraction(2n));
    terms[i][j].push(half);
    terms[j][i].push(half);
  };
  const count = new Fraction(BigInt(size));
  for (let i = 0; i < size; i++) {
    terms[i][i].push(slack);
    for (let j = 0; j < size; j++) {
      // of u_i u_j = 1 + b (w_i + w_j) + b² w_i w_j
      const amount = prices[i].over(count).minus(form[i][j]).reduced();
      const [both, neither, one] = parts.map((part) => part[i][j]);
      add(0, 0, amount);
      add(0, i + 1, width.times(amount));
      add(0, j + 1, width.times(amount));
      add(i + 1, j + 1, width.times(width).times(amount).plus(one).minus(both).minus(neither));
      add(0, i + 1, high.times(neither.minus(one)));
      add(0, j + 1, high.times(neither));
      add(0, 0, high.times(high).times(neither).negative());
    }
    add(i + 1, i + 1, square[i]);
    add(0, i + 1, high.times(square[i]).negative());
  }
  terms[size][size].push(slack);
  account.proved("the matrix inequality for all rays holds", semidefinite(terms.map((row) => row.map(plus))));
  const shares = range(size - 1).map((i) => {
    const j = new Fraction(BigInt(i + 1));
    const below = count.plus(step.times(j));
    return ONE.plus(high.times(high).times(j)).times(count).times(count).over(below.times(below)).reduced();
  });
  return slack.times(largest(shares));
}

// Whether a symmetric matrix less L Lᵀ, for an L of doubles, is diagonally dominant.
function semidefinite(matrix) {
  const near = matrix.map((row) => row.map(double));
  const most = Math.max(...flat(near).map(Math.abs));
  const factor = near.map((row) => row.map(() => 0));
  for (let i = 0; i < near.length; i++)
    for (let j = 0; j <= i; j++) {
      let left = near[i][j] - (i === j ? 1e-12 * most : 0);
      for (let h = 0; h < j; h++) left -= factor[i][h] * factor[j][h];
      if (i === j && !(left > 0)) throw new Refused("a matrix that is not positive definite");
      factor[i][j] = i === j ? Math.sqrt(left) : left / factor[j][j];
    }
  const [root, bits] = whole(factor);
  return matrix.every((row, i) => {
    const rest = row.map((x, j) => x.minus(new Fraction(inner(root[i], root[j]), 4n ** bits)).reduced());
    return plus(rest.map((x) => x.absolute())).atMost(rest[i].times(new Fraction(2n)));
  });
}
