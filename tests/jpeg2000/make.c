/* Makes the codestreams of this directory with OpenJPEG:
 *   cc make.c -o make $(pkg-config --cflags --libs libopenjp2) && ./make .
 * Each is one tile. The sample of component c at (x, y) is
 *   ((5 x + 3 y + 40 c + x y / 8) * scale) mod 2^bits, scale 1 for 8 bits and 199 for 16,
 * less half of its range if samples are signed; tests compute the same. x and y count a component's
 * own samples, so that those of subsampled ones lie closer together. */
#include <openjpeg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kind
{
    const char *name;
    int width, height, components, bits, is_signed;
    int mct, irreversible, step_x, step_y, tile;
};

static const struct kind kinds[] = {
    {"u8", 32, 32, 1, 8, 0, 0, 0, 1, 1, 0},
    {"i8", 32, 32, 1, 8, 1, 0, 0, 1, 1, 0},
    {"u16", 32, 32, 1, 16, 0, 0, 0, 1, 1, 0},
    {"i16", 32, 32, 1, 16, 1, 0, 0, 1, 1, 0},
    {"u8x2", 32, 32, 2, 8, 0, 0, 0, 1, 1, 0},
    {"u8x3", 32, 32, 3, 8, 0, 0, 0, 1, 1, 0},
    {"u8x3-mct", 32, 32, 3, 8, 0, 1, 0, 1, 1, 0},
    {"u8x4", 32, 32, 4, 8, 0, 0, 0, 1, 1, 0},
    {"i16x3-mct", 32, 32, 3, 16, 1, 1, 0, 1, 1, 0},
    {"u16x4", 32, 32, 4, 16, 0, 0, 0, 1, 1, 0},
    {"u8x3-lossy", 32, 32, 3, 8, 0, 1, 1, 1, 1, 0},
    {"u16-lossy", 32, 32, 1, 16, 0, 0, 1, 1, 1, 0},
    {"u8-tiles", 32, 32, 1, 8, 0, 0, 0, 1, 1, 16},
    {"u8-cropped", 20, 27, 1, 8, 0, 0, 0, 1, 1, 0},
    {"i8-cropped", 20, 27, 1, 8, 1, 0, 0, 1, 1, 0},
    {"u8x3-cropped", 20, 27, 3, 8, 0, 0, 0, 1, 1, 0},
    {"u8x3-422", 32, 32, 3, 8, 0, 0, 0, 2, 1, 0},
    {"u8x3-420", 32, 32, 3, 8, 0, 0, 0, 2, 2, 0},
};

static int sample(const struct kind *kind, int x, int y, int c)
{
    int number = (5 * x + 3 * y + 40 * c + x * y / 8) * (kind->bits == 16 ? 199 : 1);
    number &= (1 << kind->bits) - 1;
    return kind->is_signed ? number - (1 << (kind->bits - 1)) : number;
}

static void make(const struct kind *kind, const char *directory)
{
    opj_image_cmptparm_t components[4];
    opj_cparameters_t parameters;
    opj_image_t *image;
    opj_codec_t *codec = opj_create_compress(OPJ_CODEC_J2K);
    char path[4096];
    opj_stream_t *stream;
    memset(components, 0, sizeof components);
    for (int c = 0; c < kind->components; c++)
    {
        int dx = c == 0 ? 1 : kind->step_x, dy = c == 0 ? 1 : kind->step_y;
        components[c].dx = dx;
        components[c].dy = dy;
        components[c].w = (kind->width + dx - 1) / dx;
        components[c].h = (kind->height + dy - 1) / dy;
        components[c].prec = kind->bits;
        components[c].sgnd = kind->is_signed;
    }
    image = opj_image_create(kind->components, components, OPJ_CLRSPC_UNSPECIFIED);
    image->x1 = kind->width;
    image->y1 = kind->height;
    for (int c = 0; c < kind->components; c++)
        for (int i = 0; i < (int)(components[c].w * components[c].h); i++)
            image->comps[c].data[i] =
                sample(kind, i % (int)components[c].w, i / (int)components[c].w, c);
    opj_set_default_encoder_parameters(&parameters);
    parameters.tcp_numlayers = 1;
    parameters.cp_disto_alloc = 1;
    parameters.tcp_rates[0] = kind->irreversible ? 6 : 0;
    parameters.irreversible = kind->irreversible;
    parameters.tcp_mct = kind->mct;
    parameters.numresolution = 3;
    if (kind->tile)
    {
        parameters.tile_size_on = OPJ_TRUE;
        parameters.cp_tdx = parameters.cp_tdy = kind->tile;
    }
    snprintf(path, sizeof path, "%s/%s.j2k", directory, kind->name);
    stream = opj_stream_create_default_file_stream(path, OPJ_FALSE);
    if (!opj_setup_encoder(codec, &parameters, image) || !opj_start_compress(codec, image, stream) ||
        !opj_encode(codec, stream) || !opj_end_compress(codec, stream))
        exit(1);
    opj_stream_destroy(stream);
    opj_destroy_codec(codec);
    opj_image_destroy(image);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        make(&kinds[i], argc > 1 ? argv[1] : ".");
    return 0;
}
