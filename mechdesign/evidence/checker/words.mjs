// Numbers as Python writes them, so that both checkers make the same claims in the same words.

// Digits and exponent of a double: 0.d₁d₂… times 10^exponent.
function decimal(text) {
  const [digits, power] = text.split("e");
  return { digits: digits.replace(".", ""), power: Number(power) };
}

const exponent = (power) => `e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;

function pointed(digits, power) {
  if (power < 0) return `0.${"0".repeat(-power - 1)}${digits}`;
  if (digits.length <= power + 1) return digits.padEnd(power + 1, "0");
  return `${digits.slice(0, power + 1)}.${digits.slice(power + 1)}`;
}

function special(x) {
  return Number.isNaN(x) ? "nan" : x < 0 ? "-inf" : "inf";
}

// repr(x): the shortest decimals that mean this double.
export function shownDouble(x) {
  if (!Number.isFinite(x)) return special(x);
  const sign = x < 0 || Object.is(x, -0) ? "-" : "";
  const short = String(Math.abs(x));
  if (short.includes(".") && !short.includes("e") && Math.abs(x) >= 1e-4 && Math.abs(x) < 1e16) return sign + short;
  if (x === 0) return `${sign}0.0`;
  const { digits, power } = decimal(Math.abs(x).toExponential());
  if (power < -4 || power >= 16) {
    const point = digits.length > 1 ? `.${digits.slice(1)}` : "";
    return `${sign}${digits[0]}${point}${exponent(power)}`;
  }
  const found = pointed(digits, power);
  return sign + (found.includes(".") ? found : `${found}.0`);
}

// f"{x:.{significant}g}"
export function general(x, significant) {
  if (typeof x === "bigint") x = Number(x);
  if (!Number.isFinite(x)) return special(x);
  if (x === 0) return Object.is(x, -0) ? "-0" : "0";
  const { digits, power } = decimal(Math.abs(x).toExponential(significant - 1));
  const short = digits.replace(/0+$/, "") || "0";
  const sign = x < 0 ? "-" : "";
  if (power >= -4 && power < significant) return sign + pointed(short, power);
  return `${sign}${short[0]}${short.length > 1 ? `.${short.slice(1)}` : ""}${exponent(power)}`;
}

// repr of a value of a file.
export function shown(value) {
  if (typeof value === "number") return shownDouble(value);
  if (typeof value === "bigint") return value.toString();
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return `'${value}'`;
  return String(value);
}
