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
