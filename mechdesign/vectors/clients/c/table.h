/* The eight random bytes of one number: getrandom(&word, sizeof word, 0). A number of another width is no word. */
typedef struct { unsigned char bytes[8]; } name_word;

static const double name_knots[NAME_SEGMENTS + 1] = NAME_KNOTS;
static const double name_slopes[NAME_SEGMENTS] = NAME_SLOPES;
static const double name_bins[NAME_OUTPUTS] = NAME_BINS;
static const uint32_t name_keep[2 * NAME_SEGMENTS << NAME_COLUMN_BITS] = NAME_KEEP;
static const uint16_t name_alias[2 * NAME_SEGMENTS << NAME_COLUMN_BITS] = NAME_ALIAS;

/* The number of the output for x, or -1 where x is not in the input range (or not a number). */
static inline int name_encode(double x, name_word word)
{
    const unsigned char *b = word.bytes;
    const uint32_t lower = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    const uint32_t upper = b[4] | (uint32_t)b[5] << 8 | (uint32_t)b[6] << 16 | (uint32_t)b[7] << 24;
    int k = 0;
    if (!(x >= name_knots[0] && x <= name_knots[NAME_SEGMENTS])) return -1;
    while (k < NAME_SEGMENTS - 1 && x >= name_knots[k + 1]) k++;
    const double t = (x - name_knots[k]) * name_slopes[k];
    const uint32_t end = (double)lower < t;
    const uint32_t column = upper >> NAME_SHIFT, rest = upper & NAME_MASK;
    const uint32_t cell = ((2u * (uint32_t)k + end) << NAME_COLUMN_BITS) | column;
    return (int)(rest < name_keep[cell] ? column : name_alias[cell]);
}

/* The output of that number; an unbiased estimate of x. 0 for a number that is none. */
static inline double name_decode(int code)
{
    return code >= 0 && code < NAME_OUTPUTS ? name_bins[code] : 0.0;
}
