/* JPEG 2000 codestreams whose packets are all empty: every sample is the middle of its range. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct picture {
  uint32_t width, height, tile_width, tile_height;
  unsigned components, precision, is_signed, chroma_step, levels;
};

static size_t put(unsigned char *out, size_t at, uint32_t value, int bytes)
{
  for (int i = bytes - 1; i >= 0; i--)
    out[at++] = (unsigned char)(value >> (8 * i));
  return at;
}

static size_t codestream(const struct picture *p, unsigned char *out)
{
  size_t at = put(out, 0, 0xff4fff51, 4);
  at = put(out, at, 38 + 3 * p->components, 2);
  at = put(out, at, 0, 2);
  const uint32_t words[8] = {p->width, p->height, 0, 0, p->tile_width, p->tile_height, 0, 0};
  for (int i = 0; i < 8; i++)
    at = put(out, at, words[i], 4);
  at = put(out, at, p->components, 2);
  for (unsigned i = 0; i < p->components; i++) {
    unsigned step = i > 0 ? p->chroma_step : 1;
    at = put(out, at, (p->precision - 1) | p->is_signed << 7, 1);
    at = put(out, at, step << 8 | step, 2);
  }
  /* COD: one layer, no colour transform, blocks of 64 by 64, reversible. */
  at = put(out, at, 0xff52000c, 4);
  at = put(out, at, 0, 2);
  at = put(out, at, 1, 2);
  at = put(out, at, 0, 1);
  at = put(out, at, p->levels, 1);
  at = put(out, at, 0x04040001, 4);
  /* QCD: reversible, an exponent a subband. */
  at = put(out, at, 0xff5c, 2);
  at = put(out, at, 4 + 3 * p->levels, 2);
  at = put(out, at, 0x40, 1);
  for (unsigned i = 0; i < 1 + 3 * p->levels; i++)
    at = put(out, at, (p->precision + 2) << 3, 1);
  uint32_t tiles = ((p->width + p->tile_width - 1) / p->tile_width) *
                   ((p->height + p->tile_height - 1) / p->tile_height);
  for (uint32_t tile = 0; tile < tiles; tile++) {
    uint32_t packets = (p->levels + 1) * p->components;
    at = put(out, at, 0xff90000a, 4);
    at = put(out, at, tile, 2);
    at = put(out, at, 14 + packets, 4);
    at = put(out, at, 0x0001ff93, 4);
    for (uint32_t i = 0; i < packets; i++)
      at = put(out, at, 0, 1);
  }
  return put(out, at, 0xffd9, 2);
}
