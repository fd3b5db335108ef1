/* tests/kernels/tile_emulated.c - see the header. */
#include "tests/kernels/tile_emulated.h"
#include "core/numerics/bf16.h"
#include "tests/kernels/gemm_bf16_reference.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 8, ROWS = 16, ROW = 64 };

static _Thread_local uint8_t tiles[TILES][ROWS][ROW];
static _Thread_local int configured;

static void need(int is)
{
    if (configured == is)
        return;
    fputs(is ? "a tile is used without a configuration\n" : "tiles are configured twice\n",
          stderr);
    abort();
}

void tile_emulated_configure(void)
{
    need(0);
    configured = 1;
    memset(tiles, 0xff, sizeof tiles);
}

void tile_emulated_release(void)
{
    need(1);
    configured = 0;
}

void tile_emulated_zero(int t)
{
    need(1);
    memset(tiles[t], 0, sizeof tiles[t]);
}

void tile_emulated_load(int t, const void *from, int64_t stride)
{
    need(1);
    for (int i = 0; i < ROWS; i++)
        memcpy(tiles[t][i], (const char *)from + i * stride, ROW);
}

void tile_emulated_store(int t, void *to, int64_t stride)
{
    need(1);
    for (int i = 0; i < ROWS; i++)
        memcpy((char *)to + i * stride, tiles[t][i], ROW);
}

void tile_emulated_multiply(int c, int a, int b)
{
    need(1);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < ROWS; j++) {
            uint16_t row[WF_GEMM_TERMS], column[WF_GEMM_TERMS];
            float sum;

            memcpy(row, tiles[a][i], sizeof row);
            for (int q = 0; q < ROWS; q++)
                memcpy(column + 2 * q, tiles[b][q] + 4 * j, 2 * sizeof *column);
            memcpy(&sum, tiles[c][i] + 4 * j, sizeof sum);
            sum = bf16_add_block(sum, row, column);
            memcpy(tiles[c][i] + 4 * j, &sum, sizeof sum);
        }
    }
}
