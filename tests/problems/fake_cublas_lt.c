/* The part of cuBLASLt's interface that perfsuite.problems.cublas_lt calls, for a machine without a GPU: products of
   float32 matrices in host memory, by columns as the library counts. It proposes algorithms that differ in number,
   split and reduction, and multiplies the same way by each; number 3 is proposed but refused when it is to run. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 7, NOT_SUPPORTED = 15 };

typedef struct { int transposed[2]; int compute, scale; const float *scales[2]; int8_t fast; } Desc;
typedef struct { int type; uint64_t rows, columns; int64_t leading; int32_t batch; int64_t stride; } Layout;
typedef struct { uint64_t workspace; uint32_t reductions, alignment_a, alignment_b; } Preference;
typedef struct { uint64_t algo[8]; size_t workspace; int state; float waves; int reserved[4]; } Result;

static const struct { int split, reduction; size_t workspace; } ALGORITHMS[] = {
    {1, 0, 0}, {2, 2, 1024}, {4, 1, 0}, {1, 0, 0}, {8, 2, (size_t)1 << 40}, {1, 0, 0},
};

uint64_t most_workspace;

int cublasLtCreate(void **handle) { return (*handle = malloc(1)) ? SUCCESS : 3; }

int cublasLtMatmulDescCreate(void **desc, int compute, int scale) {
    Desc *made = calloc(1, sizeof *made);
    made->compute = compute, made->scale = scale;
    *desc = made;
    return SUCCESS;
}

int cublasLtMatmulDescSetAttribute(Desc *desc, int attribute, const void *value, size_t size) {
    if (attribute == 25 && size == 1) return memcpy(&desc->fast, value, 1), SUCCESS;
    if ((attribute == 17 || attribute == 18) && size == 8) return memcpy(&desc->scales[attribute - 17], value, 8), SUCCESS;
    if ((attribute != 3 && attribute != 4) || size != 4) return INVALID;
    memcpy(&desc->transposed[attribute - 3], value, 4);
    return SUCCESS;
}

int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    Layout *made = calloc(1, sizeof *made);
    *made = (Layout){type, rows, columns, leading, 1, 0};
    *layout = made;
    return leading >= (int64_t)rows ? SUCCESS : INVALID;
}

int cublasLtMatrixLayoutSetAttribute(Layout *layout, int attribute, const void *value, size_t size) {
    if (attribute == 5 && size == 4) return memcpy(&layout->batch, value, 4), SUCCESS;
    if (attribute == 6 && size == 8) return memcpy(&layout->stride, value, 8), SUCCESS;
    return INVALID;
}

int cublasLtMatmulPreferenceCreate(void **preference) { return (*preference = calloc(1, sizeof(Preference))) ? 0 : 3; }

int cublasLtMatmulPreferenceDestroy(void *preference) { return free(preference), SUCCESS; }

int cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *value, size_t size) {
    if (attribute == 1 && size == 8) return memcpy(&preference->workspace, value, 8), SUCCESS;
    if (attribute == 3 && size == 4) return memcpy(&preference->reductions, value, 4), SUCCESS;
    if (attribute == 5 && size == 4) return memcpy(&preference->alignment_a, value, 4), SUCCESS;
    if (attribute == 6 && size == 4) return memcpy(&preference->alignment_b, value, 4), SUCCESS;
    return INVALID;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, Desc *desc, Layout *a, Layout *b, Layout *c, Layout *d,
                                   Preference *preference, int most, Result *results, int *count) {
    (void)handle, (void)c;
    if (preference->workspace > most_workspace) most_workspace = preference->workspace;
    *count = 0;
    /* What the library checks as well: the shapes agree, and sums and factors are float32. */
    uint64_t m = desc->transposed[0] ? a->columns : a->rows, n = desc->transposed[1] ? b->rows : b->columns;
    uint64_t k = desc->transposed[0] ? a->rows : a->columns, other = desc->transposed[1] ? b->columns : b->rows;
    if (desc->compute != 68 || desc->scale != 0 || m != d->rows || n != d->columns || k != other) return INVALID;
    if (a->batch != b->batch || a->batch != d->batch) return INVALID;
    for (int one = 0; one < 6 && *count < most; one++) {
        if (ALGORITHMS[one].reduction && !(ALGORITHMS[one].reduction & preference->reductions)) continue;
        if (one == 5 && preference->workspace) continue; /* what it names only where there is none */
        Result *result = &results[(*count)++];
        memset(result, 0, sizeof *result);
        result->algo[0] = (uint64_t)one;
        result->workspace = ALGORITHMS[one].workspace;
    }
    return *count ? SUCCESS : NOT_SUPPORTED;
}

int cublasLtMatmulAlgoConfigGetAttribute(const Result *result, int attribute, void *value, size_t size, size_t *written) {
    int one = (int)result->algo[0], told = 0;
    if (size != 4) return INVALID;
    if (attribute == 0) told = one;
    if (attribute == 2) told = ALGORITHMS[one].split;
    if (attribute == 3) told = ALGORITHMS[one].reduction;
    memcpy(value, &told, 4);
    *written = 4;
    return SUCCESS;
}

int cublasLtMatmul(void *handle, Desc *desc, const float *alpha, const float *a, Layout *al, const float *b, Layout *bl,
                   const float *beta, const float *c, Layout *cl, float *d, Layout *dl, const Result *algo,
                   void *workspace, size_t workspace_size, void *stream) {
    (void)handle, (void)cl, (void)c, (void)stream;
    if (algo->algo[0] == 3) return NOT_SUPPORTED;
    if (*alpha != 1.0f || *beta != 0.0f || !workspace || workspace_size < ALGORITHMS[algo->algo[0]].workspace) return INVALID;
    uint64_t inner = desc->transposed[0] ? al->rows : al->columns;
    for (int32_t batch = 0; batch < dl->batch; batch++)
        for (uint64_t row = 0; row < dl->rows; row++)
            for (uint64_t column = 0; column < dl->columns; column++) {
                double sum = 0.0;
                for (uint64_t k = 0; k < inner; k++) {
                    uint64_t left = desc->transposed[0] ? row * al->leading + k : k * al->leading + row;
                    uint64_t right = desc->transposed[1] ? k * bl->leading + column : column * bl->leading + k;
                    sum += (double)a[batch * al->stride + left] * b[batch * bl->stride + right];
                }
                for (int one = 0; one < 2; one++) sum *= desc->scales[one] ? *desc->scales[one] : 1.0f;
                d[batch * dl->stride + column * dl->leading + row] = (float)sum;
            }
    return SUCCESS;
}
