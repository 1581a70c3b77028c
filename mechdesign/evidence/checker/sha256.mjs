// SHA-256 (FIPS 180-4): the constants are the first 32 bits of the fractional parts of roots of the first primes.

const PRIMES = [];
for (let n = 2; PRIMES.length < 64; n++) if (PRIMES.every((p) => n % p)) PRIMES.push(n);

const fractional = (x) => Math.floor((x - Math.floor(x)) * 2 ** 32);
const START = PRIMES.slice(0, 8).map((p) => fractional(Math.sqrt(p)));
const ROUNDS = new Uint32Array(PRIMES.map((p) => fractional(Math.cbrt(p))));

const turned = (x, n) => (x >>> n) | (x << (32 - n));

// The checksum of a text in UTF-8, in hexadecimal.
export function sha256(text) {
  const data = new TextEncoder().encode(text);
  const padded = new Uint8Array(Math.ceil((data.length + 9) / 64) * 64);
  padded.set(data);
  padded[data.length] = 0x80;
  const words = new DataView(padded.buffer);
  words.setBigUint64(padded.length - 8, BigInt(data.length) * 8n);
  const state = new Uint32Array(START);
  const w = new Uint32Array(64);
  for (let block = 0; block < padded.length; block += 64) {
    for (let t = 0; t < 16; t++) w[t] = words.getUint32(block + 4 * t);
    for (let t = 16; t < 64; t++) {
      const x = w[t - 15];
      const y = w[t - 2];
      const s0 = turned(x, 7) ^ turned(x, 18) ^ (x >>> 3);
      const s1 = turned(y, 17) ^ turned(y, 19) ^ (y >>> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let t = 0; t < 64; t++) {
      const first = (h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[t] + w[t]) | 0;
      const second = ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((v, k) => (state[k] += v));
  }
  return [...state].map((v) => v.toString(16).padStart(8, "0")).join("");
}
