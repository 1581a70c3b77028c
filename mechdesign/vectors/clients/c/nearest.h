#include <stdlib.h>

typedef struct { double product; uint32_t code; } name_pair;

static int name_nearer(const void *a, const void *b)
{
    const name_pair *one = (const name_pair *)a, *other = (const name_pair *)b;
    if (one->product != other->product) return one->product < other->product ? 1 : -1;
    return (one->code > other->code) - (one->code < other->code);
}

static inline void name_lift(double *u, double *q)
{
    double rest;
    size_t i;
    if (NAME_WORKING == NAME_DIMENSION) return;
    for (i = 0; i < NAME_DIMENSION; i++) q[i] = u[i] * u[i];
    rest = 1 - name_sum(q, NAME_DIMENSION);
    u[NAME_WORKING - 1] = sqrt(rest > 0 ? rest : 0);
}
