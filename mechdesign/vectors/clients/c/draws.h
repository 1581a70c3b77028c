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
