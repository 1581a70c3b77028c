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
