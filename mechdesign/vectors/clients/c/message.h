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
    memcpy(out, "MV\2", 3);
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
