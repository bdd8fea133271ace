/* Below HISTOGRAM_SUB one bucket for each value; above, HISTOGRAM_SUB for each power of two. */

#include "loadgen.h"

void histogram_record(histogram *h, uint64_t value)
{
    size_t bucket = value;
    if (value >= HISTOGRAM_SUB) {
        int shift = 63 - __builtin_clzll(value) - 10; /* leaves HISTOGRAM_SUB .. 2 times that */
        bucket = (size_t)(shift + 1) * HISTOGRAM_SUB + ((value >> shift) - HISTOGRAM_SUB);
        if (bucket >= HISTOGRAM_BUCKETS)
            bucket = HISTOGRAM_BUCKETS - 1;
    }
    h->counts[bucket]++;
}

uint64_t histogram_lowest(size_t bucket)
{
    if (bucket < HISTOGRAM_SUB)
        return bucket;
    return (bucket % HISTOGRAM_SUB + HISTOGRAM_SUB) << (bucket / HISTOGRAM_SUB - 1);
}
