/*
 * kernels/conv_loops_internal.h - one position of patches, and one pixel of their gradient,
 * over numbers of the type T. A file defines T and includes this once.
 */

/* y[c, k] = the pixel of tap k, 0 in the padding; x and y are those of the sequence. */
static inline void patches_position(const wf_patch_job *j, int64_t position, const T *x, T *y)
{
    y += position * j->channels * j->taps;
    for (int64_t k = 0; k < j->taps; k++) {
        int64_t pixel = wf_patch_pixel(j, position, k);

        for (int64_t c = 0; c < j->channels; c++)
            y[c * j->taps + k] = pixel < 0 ? 0 : x[pixel * j->channels + c];
    }
}

/* dx[c] = sum over the taps that read this pixel, in their order, from +0 */
static inline void patches_grad_pixel(const wf_patch_job *j, int64_t pixel, const T *dy, T *dx)
{
    dx += pixel * j->channels;
    for (int64_t c = 0; c < j->channels; c++)
        dx[c] = 0;
    for (int64_t k = 0; k < j->taps; k++) {
        int64_t position = wf_patch_position(j, pixel, k);

        for (int64_t c = 0; c < j->channels && position >= 0; c++)
            dx[c] += dy[(position * j->channels + c) * j->taps + k];
    }
}
