// Finite metric spaces: the distances between all points, in doubles.
//
// They are stated as a matrix, or follow from the kind of space: of clusters one within and one across, along the edges of a tree, great
// circles of the mean earth between degrees of latitude and longitude, else straight lines between coordinates.

import { Refused } from "./errors.mjs";
import { double, Fraction, rational } from "./rational.mjs";
import { common, flat } from "./reading.mjs";

const EARTH = 6371.0088; // its mean radius in kilometres, of which great circles are
const KINDS = new Map([
  ["clustered", byCluster],
  ["tree", alongTree],
  ["geodesic", ({ points }) => pairwiseBy(points, greatCircle)],
]);

export function spaceDistances(space, account) {
  if (space.matrix !== null) return space.matrix;
  if (["grid", "euclidean", "line"].includes(space.kind) && space.points !== null) return pairwiseBy(space.points, straight);
  const size = Number(space.shape.reduce((a, b) => a * b, 1n));
  account.takes(6 * size ** 2);
  const found = (KINDS.get(space.kind) ?? (({ points }) => pairwiseBy(points, straight)))(space);
  const apart = found.every((row, x) => row.length === size && row.every((d, y) => x === y || (0 < d && d < Infinity)));
  if (found.length !== size || !apart) throw new Refused("points of a space that are not apart, or of another number");
  return found.map((row, x) => row.map((d, y) => (x === y ? 0 : d)));
}

const pairwiseBy = (points, distance) => points.map((p) => points.map((q) => distance(flat([p]).map(double), flat([q]).map(double))));
const straight = (p, q) => Math.hypot(...p.map((a, k) => a - q[k]));

function greatCircle(one, other) {
  const [[a, b], [c, d]] = [one, other].map((place) => place.map((degrees) => degrees * (Math.PI / 180)));
  const chord = Math.sin((a - c) / 2) ** 2 + Math.cos(a) * Math.cos(c) * Math.sin((b - d) / 2) ** 2;
  return 2 * EARTH * Math.asin(Math.sqrt(Math.min(chord, 1)));
}

function byCluster({ shape, within, across }) {
  if (shape.length !== 2 || shape.some((n) => n < 1n)) throw new Refused("a space that is not clustered");
  const clusters = Array.from({ length: Number(shape[0] * shape[1]) }, (_, x) => BigInt(x) / shape[1]);
  return clusters.map((x) => clusters.map((y) => double(x === y ? within : across)));
}

// Lengths of paths in a tree: to where two nodes' ways to the root meet.
function alongTree({ parents, lengths, leaves }) {
  const { unit, places } = common(lengths.map(rational));
  const ways = leaves.map((leaf) => {
    const way = new Map();
    for (let [node, length] = [leaf, 0n]; !(node < 0n) && !way.has(node); node = parents[node]) {
      if (typeof node !== "bigint" || !(node in places)) throw new Refused("a node that is none");
      way.set(node, length);
      length += places[node];
    }
    return way;
  });
  const meet = (way, other) => [...way].flatMap(([node, length]) => (other.has(node) ? [length + other.get(node)] : []));
  return ways.map((way) =>
    ways.map((other) => {
      const sums = meet(way, other);
      if (!sums.length) throw new Refused("a tree in two parts");
      return new Fraction(sums.reduce((a, b) => (b < a ? b : a)), unit).toNumber();
    }),
  );
}
