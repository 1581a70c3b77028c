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
