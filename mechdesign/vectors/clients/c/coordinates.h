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
