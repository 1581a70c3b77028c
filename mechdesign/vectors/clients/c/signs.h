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
