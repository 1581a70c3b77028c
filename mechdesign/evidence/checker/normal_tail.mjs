// P(Z > x) of a normal Z, in fixed point: 1/2 − φ(x) Σ_k x^(2k+1)/(1·3·5 ⋯ (2k+1)), positive terms, so that no more than the last
// few of BITS are lost; what is known to 2⁻³⁸⁰ is far below the slack that the checks leave.

import { NotCovered } from "./errors.mjs";
import { Fraction } from "./rational.mjs";
import { expBounds } from "./reading.mjs";

const BITS = 420n;
const UNITY = 1n << BITS;
const FARTHEST = new Fraction(20n);

const fixed = (x) => (x.n * UNITY) / x.d;

function arctangent(inverse) {
  let [term, sum] = [UNITY / inverse, 0n];
  for (let k = 1n; term; k += 2n) {
    sum += k % 4n === 1n ? term / k : -(term / k);
    term /= inverse * inverse;
  }
  return sum;
}

// π = 16 arctan 1/5 − 4 arctan 1/239, in units of 2⁻⁴²⁰.
const PI = 16n * arctangent(5n) - 4n * arctangent(239n);

// The largest whole number whose square is at most this.
export function integerRoot(n) {
  if (n < 2n) return n;
  let root = 1n << BigInt((n.toString(2).length + 1) >> 1);
  for (;;) {
    const next = (root + n / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}

// √(2/π), and the root of a fraction, each to about 2⁻⁴⁰⁰.
export const meanOfNormal = () => new Fraction(integerRoot((2n * UNITY * UNITY * UNITY) / PI), UNITY);
export const root = (x) => new Fraction(integerRoot((x.n * UNITY * UNITY) / x.d), UNITY);

export function normalTail(x) {
  if (x.sign < 0) return new Fraction(1n).minus(normalTail(x.negative()));
  if (FARTHEST.below(x)) throw new NotCovered("normal laws further out than 20 standard deviations, in a page");
  const place = fixed(x);
  const square = (place * place) >> BITS;
  let [term, sum] = [place, place];
  for (let k = 3n; term; k += 2n) {
    term = ((term * square) >> BITS) / k;
    sum += term;
  }
  const density = fixed(expBounds(x.times(x).over(new Fraction(-2n)).reduced(), 420)[0]);
  const whole = integerRoot(2n * PI * UNITY);
  return new Fraction(UNITY / 2n - (density * sum) / whole, UNITY);
}
