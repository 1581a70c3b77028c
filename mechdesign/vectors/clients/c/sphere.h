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
