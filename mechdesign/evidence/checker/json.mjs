// JSON without loss: an integer becomes a BigInt, a number with a point or an exponent a double, as Python reads them; an
// object has no prototype. What Python's reader refuses is refused here.

import { Refused } from "./errors.mjs";
import { shownDouble } from "./words.mjs";

const DEPTH = 900;
const DIGITS = 4300;
const SPACE = /[ \t\n\r]*/y;
const NUMBER = /(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?/y;
const STRING = /"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*"/y;
const WORDS = [["true", true], ["false", false], ["null", null], ["NaN", NaN], ["Infinity", Infinity], ["-Infinity", -Infinity]];

export function parse(text) {
  let at = 0;

  const space = () => {
    SPACE.lastIndex = at;
    at += SPACE.exec(text)[0].length;
  };
  const fail = () => {
    throw new Refused(`no JSON at character ${at}`);
  };
  const next = (character) => {
    space();
    if (text[at] !== character) return false;
    at += 1;
    return true;
  };

  function string() {
    space();
    STRING.lastIndex = at;
    const found = STRING.exec(text);
    if (!found) fail();
    at += found[0].length;
    return found[0].includes("\\") ? JSON.parse(found[0]) : found[0].slice(1, -1);
  }

  function number() {
    NUMBER.lastIndex = at;
    const found = NUMBER.exec(text);
    if (!found) fail();
    at += found[0].length;
    if (found[2] !== undefined || found[3] !== undefined) return Number(found[0]);
    if (found[1].replace("-", "").length > DIGITS) throw new Refused(`an integer of more than ${DIGITS} digits`);
    return BigInt(found[1]);
  }

  function value(depth) {
    if (depth > DEPTH) throw new Refused(`more than ${DEPTH} levels`);
    space();
    if (text[at] === "{") return object(depth);
    if (text[at] === "[") return array(depth);
    if (text[at] === '"') return string();
    if (text[at] >= "0" && text[at] <= "9") return number();
    for (const [word, meaning] of WORDS) {
      if (text.startsWith(word, at)) {
        at += word.length;
        return meaning;
      }
    }
    return number();
  }

  function array(depth) {
    const found = [];
    at += 1;
    if (next("]")) return found;
    do found.push(value(depth + 1));
    while (next(","));
    if (!next("]")) fail();
    return found;
  }

  function object(depth) {
    const found = Object.create(null);
    at += 1;
    if (next("}")) return found;
    do {
      const key = string();
      if (key in found) throw new Refused("a key stands twice in one object");
      if (!next(":")) fail();
      found[key] = value(depth + 1);
    } while (next(","));
    if (!next("}")) fail();
    return found;
  }

  const document = value(0);
  space();
  if (at < text.length) fail();
  return document;
}

// Python's order of strings, by code points.
function byCodePoints(a, b) {
  const left = [...a];
  const right = [...b];
  for (let k = 0; k < Math.min(left.length, right.length); k++) {
    const difference = left[k].codePointAt(0) - right[k].codePointAt(0);
    if (difference) return difference;
  }
  return left.length - right.length;
}

const quoted = (text) => {
  if (!text.isWellFormed()) throw new Refused("half of a surrogate pair");
  return JSON.stringify(text);
};

// The canonical text of which the checksum is taken: keys sorted, no spaces, doubles as Python writes them.
export function canonical(node) {
  const parts = [];
  const write = (value) => {
    if (typeof value === "bigint") parts.push(value.toString());
    else if (typeof value === "number") {
      if (!Number.isFinite(value)) throw new Refused("a number that is not finite");
      parts.push(shownDouble(value));
    } else if (typeof value === "string") parts.push(quoted(value));
    else if (value === null || typeof value === "boolean") parts.push(String(value));
    else if (Array.isArray(value)) {
      parts.push("[");
      value.forEach((child, k) => {
        if (k) parts.push(",");
        write(child);
      });
      parts.push("]");
    } else {
      parts.push("{");
      Object.keys(value).sort(byCodePoints).forEach((key, k) => {
        parts.push(k ? "," : "", quoted(key), ":");
        write(value[key]);
      });
      parts.push("}");
    }
  };
  write(node);
  return parts.join("");
}
