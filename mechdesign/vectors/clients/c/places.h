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
