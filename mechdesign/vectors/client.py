"""Clients of vector mechanisms in C: what encodes a vector and writes the message that docs/wire.md describes.

Doubles with + − × ÷ √ in the order stated there, integers for everything that is private, and random words from the caller's source: C and
Python make the same message of the same words. Privacy needs nothing of the doubles. One probability is not the exact fraction: how likely
all near codes are is cut off after 256 binary digits, which makes E smaller, by less than 2⁻²⁴⁰ of itself, and keeps the budget.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mechdesign.errors import DesignError
from mechdesign.vectors.coded import CodedMechanism, SubsetSelection
from mechdesign.vectors.sampled import SampledCoordinates, SampledSigns, SampledSubset

_LIMBS = 4

MESSAGE = """
#include <stddef.h>
#include <string.h>

/* A seed: sixteen bytes, getrandom(&seed, sizeof seed, 0), fresh for every message; or one that was agreed on. */
typedef struct { unsigned char bytes[16]; } name_seed;

/* Write the message of these codes, name_CODES of each vector, and return its length, at most NAME_BYTES(vectors). With a
 * seed that was agreed on, own is null and first the number of the first vector. */
static inline size_t name_message(const uint32_t *codes, uint32_t vectors, const name_seed *own, uint64_t first, unsigned char *out)
{
    static const unsigned char mark[4] = NAME_FINGERPRINT;
    size_t size = own ? 28 : 20, i;
    uint64_t bit = 0;
    uint32_t crc = 0xffffffffu;
    int k;
    memcpy(out, "MV\\2", 3);
    out[3] = own != NULL;
    memcpy(out + 4, mark, 4);
    for (k = 0; k < 4; k++) out[8 + k] = (unsigned char)(vectors >> 8 * k);
    if (own) memcpy(out + 12, own->bytes, 16);
    else for (k = 0; k < 8; k++) out[12 + k] = (unsigned char)(first >> 8 * k);
    for (i = 0; i < (size_t)vectors * NAME_CODES; i++)
        for (k = 0; k < NAME_CODE_BITS; k++, bit++) {
            if (bit % 8 == 0) out[size++] = 0;
            out[size - 1] |= (unsigned char)((codes[i] >> k & 1u) << bit % 8);
        }
    for (i = 0; i < size; i++)
        for (crc ^= out[i], k = 0; k < 8; k++) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
    for (k = 0; k < 4; k++) out[size++] = (unsigned char)(~crc >> 8 * k);
    return size;
}
"""

_WORDS = """
/* Eight bytes of a cryptographic generator (getrandom, /dev/urandom), never used twice. */
typedef struct { unsigned char bytes[8]; } name_word;
typedef name_word (*name_source)(void *state);
"""

_DRAWS = """
static inline uint64_t name_number(const unsigned char *b)
{
    uint64_t out = 0;
    int k;
    for (k = 7; k >= 0; k--) out = out << 8 | b[k];
    return out;
}

static inline uint64_t name_next(name_source source, void *state)
{
    const name_word word = source(state);
    return name_number(word.bytes);
}

/* Whether U is below the number with these digits to the base 2^64; U begins with the word. */
static inline int name_less(uint64_t word, const uint64_t *digits, int count, name_source source, void *state)
{
    int i;
    for (i = 0; word == digits[i]; word = name_next(source, state))
        if (++i == count) return 0;
    return word < digits[i];
}

/* Words that both ends derive from the seed: Philox 4x64-10. */
typedef struct { uint64_t key[2], number, block, words[4]; int left; } name_stream;

static inline name_stream name_shared(const name_seed *seed, uint64_t number)
{
    name_stream s = {{0, 0}, 0, 0, {0, 0, 0, 0}, 0};
    s.key[0] = name_number(seed->bytes);
    s.key[1] = name_number(seed->bytes + 8);
    s.number = number;
    return s;
}

static inline uint64_t name_high(uint64_t a, uint64_t b)
{
    const uint64_t half = 0xffffffffu, al = a & half, ah = a >> 32, bl = b & half, bh = b >> 32;
    const uint64_t one = ah * bl + (al * bl >> 32), other = al * bh + (one & half);
    return ah * bh + (one >> 32) + (other >> 32);
}

static inline uint64_t name_shared_word(name_stream *s)
{
    if (!s->left) {
        const uint64_t a = UINT64_C(0xd2e7470ee14c6c93), b = UINT64_C(0xca5a826395121157);
        uint64_t *c = s->words, k0 = s->key[0], k1 = s->key[1];
        int round;
        c[0] = ++s->block, c[1] = 0, c[2] = s->number, c[3] = 0;
        for (round = 0; round < 10; round++) {
            const uint64_t p = a * c[0], q = b * c[2], ph = name_high(a, c[0]), qh = name_high(b, c[2]);
            c[0] = qh ^ c[1] ^ k0, c[1] = q, c[2] = ph ^ c[3] ^ k1, c[3] = p;
            k0 += UINT64_C(0x9e3779b97f4a7c15), k1 += UINT64_C(0xbb67ae8584caa73b);
        }
        s->left = 4;
    }
    return s->words[4 - s->left--];
}

/* The sum of numbers in a stated order; they are overwritten. */
static inline double name_sum(double *q, size_t size)
{
    while (size > 1) {
        const size_t half = (size + 1) / 2;
        size_t i;
        for (i = 0; i < size - half; i++) q[i] += q[half + i];
        size = half;
    }
    return q[0];
}

/* The vector over NAME_RADIUS, or -1 where it is refused. */
static inline int name_inputs(const double *x, int clip, double *y, double *q)
{
    double most = 1e-300, length;
    size_t i;
    for (i = 0; i < NAME_DIMENSION; i++) {
        const double far = 1e300 * NAME_RADIUS, v = x[i];
        if (!isfinite(v)) return -1;
        y[i] = (fabs(v) < 1e-140 * NAME_RADIUS ? 0.0 : v > far ? far : v < -far ? -far : v) / NAME_RADIUS;
        most = fabs(y[i]) > most ? fabs(y[i]) : most;
    }
    if (NAME_BOX) {
        if (most > 1 + 1e-9 && !clip) return -1;
    } else {
        for (i = 0; i < NAME_DIMENSION; i++) q[i] = (y[i] / most) * (y[i] / most);
        length = sqrt(name_sum(q, NAME_DIMENSION)) * most;
        if (!clip && (length > 1 + 1e-9 || (NAME_SPHERE && length < 1 - 1e-9))) return -1;
        if (NAME_SPHERE && length == 0) y[0] = length = 1;
        if (!NAME_SPHERE && length < 1) length = 1;
        for (i = 0; i < NAME_DIMENSION; i++) y[i] /= length;
    }
    if (NAME_CUT) for (i = 0; i < NAME_DIMENSION; i++) y[i] = y[i] < -1 ? -1 : y[i] > 1 ? 1 : y[i];
    return 0;
}
"""

_PLACES = """
static inline void name_below(uint64_t bound, uint64_t *out, name_source source, void *state)
{
    const uint64_t surplus = (0 - bound) % bound;
    int i, again;
    for (i = 0; i < NAME_CODES; i++) out[i] = name_next(source, state);
    do
        for (again = 0, i = 0; i < NAME_CODES; i++)
            if (out[i] > UINT64_MAX - surplus) out[i] = name_next(source, state), again = 1;
    while (again);
    for (i = 0; i < NAME_CODES; i++) out[i] %= bound;
}

/* For every code a place in an order that puts the near ones first. */
static inline void name_places(uint32_t *places, name_source source, void *state)
{
    static const uint64_t digits[] = NAME_NEAR_DIGITS;
    uint64_t near[NAME_CODES], other[NAME_CODES], words[NAME_CODES];
    int i;
    name_below(NAME_NEAR, near, source, state);
    name_below(NAME_OUTPUTS - NAME_NEAR, other, source, state);
    for (i = 0; i < NAME_CODES; i++) words[i] = name_next(source, state);
    for (i = 0; i < NAME_CODES; i++) {
        const int is_near = name_less(words[i], digits, (int)(sizeof digits / sizeof *digits), source, state);
        places[i] = (uint32_t)(is_near ? near[i] : NAME_NEAR + other[i]);
    }
}
"""

_SAMPLED = """
typedef struct { double y[NAME_DIMENSION], q[NAME_DIMENSION]; uint64_t words[NAME_SENT]; uint32_t sent[NAME_SENT]; unsigned char up[NAME_SENT]; uint32_t codes[NAME_CODES]; } name_scratch;

static inline void name_subset(const name_seed *seed, uint64_t number, uint32_t *sent)
{
    name_stream shared = name_shared(seed, number);
    uint32_t i, j, size = 0, t;
    for (j = NAME_DIMENSION - NAME_SENT; j < NAME_DIMENSION; j++) {
        uint32_t mask = 0;
        while (mask < j) mask = mask << 1 | 1u;
        do t = (uint32_t)name_shared_word(&shared) & mask; while (t > j);
        for (i = 0; i < size && sent[i] != t; i++) continue;
        if (i < size) t = j;
        for (i = size++; i > 0 && sent[i - 1] > t; i--) sent[i] = sent[i - 1];
        sent[i] = t;
    }
}

static inline int name_fraction(double r, name_source source, void *state)
{
    for (;;) {
        const uint64_t word = name_next(source, state), whole = (uint64_t)(r *= 0x1p64);
        if (word != whole || r == (double)whole) return word < whole;
        r -= (double)whole;
    }
}

/* Choose the coordinates that are sent, and round each to a sign. */
static inline void name_signs(const name_seed *seed, uint64_t number, name_source source, void *state, name_scratch *s)
{
    size_t i;
    name_subset(seed, number, s->sent);
    for (i = 0; i < NAME_SENT; i++) s->words[i] = name_next(source, state);
    for (i = 0; i < NAME_SENT; i++) {
        const double y = s->y[s->sent[i]], t = fabs(y) * 0x1p63;
        const uint64_t whole = (uint64_t)t, v = s->words[i] >> 1;
        const int kept = v == whole && t > (double)whole ? name_fraction(t - (double)whole, source, state) : v < whole;
        s->up[i] = (unsigned char)(kept ? y > 0 : (int)(s->words[i] & 1u));
    }
}
"""

_SIGNS = """
static inline uint32_t name_choose(uint32_t n, uint32_t k)
{
    uint32_t c = 1, i;
    for (i = 0; i < k; i++) c = c * (n - i) / (i + 1);
    return c;
}

/* The text at this place: those with the fewest bits set first. */
static inline uint32_t name_text(uint32_t place)
{
    uint32_t set = 0, bit, text = 0;
    while (place >= name_choose(NAME_CODE_BITS, set)) place -= name_choose(NAME_CODE_BITS, set++);
    for (bit = NAME_CODE_BITS; bit-- > 0;)
        if (place >= name_choose(bit, set)) {
            place -= name_choose(bit, set--);
            text |= (uint32_t)1 << bit;
        }
    return text;
}

static inline void name_codes(const name_seed *seed, uint64_t number, name_source source, void *state, name_scratch *s, uint32_t *codes)
{
    uint32_t place;
    size_t i;
    name_signs(seed, number, source, state, s);
    name_places(&place, source, state);
    for (codes[0] = name_text(place), i = 0; i < NAME_SENT; i++) codes[0] ^= (uint32_t)s->up[i] << i;
}
"""

_COORDINATES = """
static inline void name_codes(const name_seed *seed, uint64_t number, name_source source, void *state, name_scratch *s, uint32_t *codes)
{
    static const uint64_t down[] = NAME_DOWN_DIGITS, up[] = NAME_UP_DIGITS;
    const int downs = (int)(sizeof down / sizeof *down), ups = (int)(sizeof up / sizeof *up);
    size_t i;
    name_signs(seed, number, source, state, s);
    for (i = 0; i < NAME_SENT; i++) s->words[i] = name_next(source, state);
    for (i = 0; i < NAME_SENT; i++)
        codes[i] = !name_less(s->words[i], s->up[i] ? up : down, s->up[i] ? ups : downs, source, state);
}
"""

_NEAREST = """
#include <stdlib.h>

typedef struct { double product; uint32_t code; } name_pair;

static int name_nearer(const void *a, const void *b)
{
    const name_pair *one = (const name_pair *)a, *other = (const name_pair *)b;
    if (one->product != other->product) return one->product < other->product ? 1 : -1;
    return (one->code > other->code) - (one->code < other->code);
}

static inline void name_lift(double *u, double *q)
{
    double rest;
    size_t i;
    if (NAME_WORKING == NAME_DIMENSION) return;
    for (i = 0; i < NAME_DIMENSION; i++) q[i] = u[i] * u[i];
    rest = 1 - name_sum(q, NAME_DIMENSION);
    u[NAME_WORKING - 1] = sqrt(rest > 0 ? rest : 0);
}
"""

_SPHERE = """
typedef struct { double y[NAME_WORKING], q[NAME_WORKING]; name_pair order[NAME_OUTPUTS]; uint32_t codes[NAME_CODES]; } name_scratch;

static inline void name_transform(double *z)
{
    const double root = sqrt((double)NAME_POWER);
    size_t g, i;
    for (g = 1; g < NAME_POWER; g *= 2)
        for (i = 0; i < NAME_POWER; i++)
            if (!(i & g)) {
                const double a = z[i], b = z[i + g];
                z[i] = a + b, z[i + g] = a - b;
            }
    for (i = 0; i < NAME_POWER; i++) z[i] /= root;
}

static inline void name_codes(const name_seed *seed, uint64_t number, name_source source, void *state, name_scratch *s, uint32_t *codes)
{
    const double n = NAME_OUTPUTS - 1, along = sqrt(1 + 1 / n), back = (sqrt(n + 1) - 1) / (n * sqrt(n));
    const size_t half = (NAME_WORKING + 1) / 2;
    name_stream shared = name_shared(seed, number);
    double *u = s->y, *q = s->q, total;
    uint64_t word = 0;
    uint32_t place;
    size_t i, m = 0;
    int round;
    name_places(&place, source, state);
    name_lift(u, q);
    for (round = 0; round < 4; round++) {
        for (i = 0; i < NAME_WORKING; i++, m++, word >>= 1) {
            if (m % 64 == 0) word = name_shared_word(&shared);
            if (word & 1u) u[i] = -u[i];
        }
        name_transform(u);
        if (NAME_POWER < NAME_WORKING) name_transform(u + (NAME_WORKING - NAME_POWER));
        memcpy(q, u, sizeof s->q);
        for (i = 0; i < NAME_WORKING; i++) u[i] = i % 2 ? q[half + i / 2] : q[i / 2];
    }
    memcpy(q, u, sizeof s->q);
    total = name_sum(q, NAME_OUTPUTS - 1);
    for (i = 0; i < NAME_OUTPUTS; i++) {
        s->order[i].product = i < NAME_OUTPUTS - 1 ? along * u[i] - back * total : -total / sqrt(n);
        s->order[i].code = (uint32_t)i;
    }
    qsort(s->order, NAME_OUTPUTS, sizeof *s->order, name_nearer);
    codes[0] = s->order[place].code;
}
"""

_DIRECTIONS = """
#define NAME_PAIRS ((NAME_WORKING + 1) / 2)
#define NAME_TRIES (3 * NAME_PAIRS / 2 + 64)
#define NAME_BLOCKS ((NAME_PAIRS - 1 + NAME_TRIES + 3) / 4)
#define NAME_CORNERS (NAME_WORKING > 2 ? 1 : NAME_OUTPUTS < 4 ? 4 : NAME_OUTPUTS)
typedef struct {
    double y[NAME_WORKING], q[NAME_WORKING], e[2 * NAME_PAIRS], square[NAME_PAIRS], corner[NAME_CORNERS][2];
    uint64_t mark[NAME_PAIRS + 1];
    name_pair order[NAME_OUTPUTS];
    uint32_t codes[NAME_CODES];
} name_scratch;

static int name_larger(const void *a, const void *b)
{
    const uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

/* Put a direction into s->e. */
static inline void name_direction(name_stream *shared, uint64_t index, name_scratch *s)
{
    const int64_t side = (int64_t)1 << 26;
    const double whole = 0x1p53, *last = s->e + (2 * NAME_PAIRS - 2);
    double length = whole;
    size_t i;
    int passed = 0;
    shared->block = index * NAME_BLOCKS, shared->left = 0;
    s->mark[0] = 0, s->mark[NAME_PAIRS] = (uint64_t)1 << 53;
    for (i = 1; i < NAME_PAIRS; i++) s->mark[i] = name_shared_word(shared) >> 11;
    qsort(s->mark + 1, NAME_PAIRS - 1, sizeof *s->mark, name_larger);
    for (i = 0; i < NAME_PAIRS;) {
        const uint64_t word = name_shared_word(shared);
        const int64_t u = 2 * (int64_t)(word >> 38) + 1 - side, v = 2 * (int64_t)(word >> 12 & (uint64_t)(side - 1)) + 1 - side;
        if (u * u + v * v > side * side && ++passed <= NAME_TRIES - NAME_PAIRS) continue;
        s->e[2 * i] = (double)u, s->e[2 * i + 1] = (double)v, s->square[i++] = (double)(u * u + v * v);
    }
    if (NAME_WORKING % 2) {
        const double w = (double)(s->mark[NAME_PAIRS] - s->mark[NAME_PAIRS - 1]);
        const double part = w * (last[0] * last[0] / s->square[NAME_PAIRS - 1]);
        length = whole - w;
        length += part;
    }
    for (i = 0; i < NAME_PAIRS; i++) {
        const double q = sqrt((double)(s->mark[i + 1] - s->mark[i]) / s->square[i] / length);
        s->e[2 * i] *= q, s->e[2 * i + 1] *= q;
    }
}

/* Put the corners of a regular polygon into s->corner, the first at (1, 0). */
static inline void name_polygon(name_scratch *s)
{
    size_t size = 4, i;
    for (i = 0; i < 4; i++) s->corner[i][0] = i % 2 ? 0 : 1.0 - (double)i, s->corner[i][1] = i % 2 ? 2.0 - (double)i : 0;
    for (; size < NAME_OUTPUTS; size *= 2)
        for (i = size; i-- > 0;) {
            const double *next = s->corner[i + 1 < size ? i + 1 : 0];
            const double e = s->corner[i][0] + next[0], f = s->corner[i][1] + next[1], length = sqrt(e * e + f * f);
            s->corner[2 * i + 1][0] = e / length, s->corner[2 * i + 1][1] = f / length;
            memcpy(s->corner[2 * i], s->corner[i], sizeof s->corner[i]);
        }
}

static inline void name_codes(const name_seed *seed, uint64_t number, name_source source, void *state, name_scratch *s, uint32_t *codes)
{
    name_stream shared = name_shared(seed, number);
    uint32_t places[NAME_CODES], message;
    size_t c, i;
    name_places(places, source, state);
    name_lift(s->y, s->q);
    if (NAME_WORKING == 2) name_polygon(s);
    for (message = 0; message < NAME_CODES; message++) {
        double x = 0, y = 0;
        if (NAME_WORKING == 2) name_direction(&shared, message, s), x = s->e[0], y = s->e[1];
        for (c = 0; c < NAME_OUTPUTS; c++) {
            if (NAME_WORKING == 2) {
                const double *at = s->corner[NAME_OUTPUTS == 2 ? 2 * c : c];
                s->e[0] = at[0] * x - at[1] * y, s->e[1] = at[0] * y + at[1] * x;
            } else name_direction(&shared, (uint64_t)message * NAME_OUTPUTS + c, s);
            for (i = 0; i < NAME_WORKING; i++) s->q[i] = s->e[i] * s->y[i];
            s->order[c].product = name_sum(s->q, NAME_WORKING);
            s->order[c].code = (uint32_t)c;
        }
        qsort(s->order, NAME_OUTPUTS, sizeof *s->order, name_nearer);
        codes[message] = s->order[places[message]].code;
    }
}
"""

_ENCODE = """
/* Write the message of one vector of NAME_DIMENSION numbers, and return its length; 0 where the vector is refused: a number that is not
 * finite, or, without clip, a vector that is too long. scratch is memory to work in. agreed is 0 where the seed is fresh and goes with
 * the message, else 1, and number is that of the vector. */
static inline size_t name_encode(const double *x, int clip, const name_seed *seed, int agreed, uint64_t number, name_source source,
                                 void *state, name_scratch *scratch, unsigned char *out)
{
    if (name_inputs(x, clip, scratch->y, scratch->q) != 0) return 0;
    name_codes(seed, agreed ? number : 0, source, state, scratch, scratch->codes);
    return name_message(scratch->codes, 1, agreed ? NULL : seed, number, out);
}
#endif
"""

_HEAD = """/* {name}: one vector of {dimension} numbers a message, written by mechdesign.
 * Local differential privacy of the whole vector: epsilon = {epsilon!r}, whatever the doubles do.
 * C99 with IEEE doubles, -ffp-contract=off, and the C library's sqrt (-lm). */
#ifndef MECHDESIGN_NAME_H
#define MECHDESIGN_NAME_H
#include <math.h>
#include <stdint.h>
"""


def prefixed(code: str, name: str) -> str:
    """C with every name_ and NAME_ replaced."""
    return code.replace("NAME_", f"{name.upper()}_").replace("name_", f"{name}_")


def message_constants(mechanism: CodedMechanism) -> dict[str, object]:
    """What MESSAGE is made with."""
    size = f"(32 + ((size_t)(vectors) * {mechanism.vector_bits} + 7) / 8)"
    return {
        "FINGERPRINT": "{" + ", ".join(map(str, mechanism.fingerprint)) + "}",
        "CODES": mechanism.slots,
        "CODE_BITS": mechanism.code_bits,
        "BYTES(vectors)": size,
    }


def defined(constants: dict[str, object]) -> str:
    """As C's definitions."""
    return "".join(f"#define NAME_{key} {value}\n" for key, value in constants.items())


def _digits(p: Fraction) -> str:
    found: list[str] = []
    while p and len(found) < _LIMBS:
        whole, p = divmod(p * (1 << 64), 1)
        found.append(f"UINT64_C({whole})")
    return "{" + ", ".join(found) + "}"


def encoder(mechanism: Any, name: str) -> str:
    """The C header of a mechanism of whole vectors: of those that `c_header` takes."""
    constants = {
        "DIMENSION": mechanism.dimension,
        "RADIUS": mechanism.radius.hex(),
        "BOX": int(mechanism.inputs == "box"),
        "SPHERE": int(mechanism.inputs == "sphere"),
        "CUT": int(isinstance(mechanism, SampledSubset)),
        **message_constants(mechanism),
    }
    own = _PLACES
    if isinstance(mechanism, SubsetSelection):
        near = _digits(mechanism.near * mechanism.probabilities[0])
        constants |= {"OUTPUTS": mechanism.outputs, "NEAR": mechanism.near, "NEAR_DIGITS": near}
    if isinstance(mechanism, SampledSigns):
        constants |= {"SENT": mechanism.sent}
        own += _SAMPLED + _SIGNS
    elif isinstance(mechanism, SampledCoordinates):
        law = mechanism.one.law
        if not mechanism.one_segment or mechanism.levels != 2 or law is None:
            wanted = "must be of two outputs for a client in C: export its IntegerTable"
            raise DesignError.of("coordinate", mechanism.coordinate, wanted)
        constants |= {"SENT": mechanism.sent}
        constants |= {f"{key}_DIGITS": _digits(law.row(0, end)[0]) for end, key in enumerate(("DOWN", "UP"))}
        own = _SAMPLED + _COORDINATES
    else:
        working, fast = mechanism.working, getattr(mechanism, "rotation", None)
        if fast == "exact":
            wanted = "must be 'fast' for a client in C: an exact rotation takes a QR decomposition"
            raise DesignError.of("rotation", fast, wanted)
        constants |= {"WORKING": working, "POWER": 1 << (working.bit_length() - 1)}
        own += _NEAREST + (_SPHERE if fast else _DIRECTIONS)
    head = _HEAD.format(name=name, dimension=mechanism.dimension, epsilon=mechanism.privacy_loss())
    return prefixed(head + defined(constants) + _WORDS + MESSAGE + _DRAWS + own + _ENCODE, name)
