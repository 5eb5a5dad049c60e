// Copies a raster into a new TIFF file with other creation options, batch by batch: how much memory
// it takes does not depend on the size of the raster.
//
//     convert [-co NAME=VALUE]… [-mb megabytes] <from> <to.tif>
//
// Georeferencing and nodata go along. Exit code: 0, 1 if something failed (there is no file
// then), 2 if it was called wrongly.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <gpugtiff.h>

namespace {

void check(gpugtiff_result result)
{
    if (result != GPUGTIFF_OK)
        throw std::runtime_error(std::string(gpugtiff_error_message()) + " (" +
                                 gpugtiff_result_name(result) + ")");
}

size_t bytes_of(gpugtiff_type type)
{
    switch (type) {
    case GPUGTIFF_TYPE_U8: case GPUGTIFF_TYPE_I8:
        return 1;
    case GPUGTIFF_TYPE_U16: case GPUGTIFF_TYPE_I16: case GPUGTIFF_TYPE_F16:
        return 2;
    case GPUGTIFF_TYPE_U32: case GPUGTIFF_TYPE_I32: case GPUGTIFF_TYPE_F32:
    case GPUGTIFF_TYPE_CI16: case GPUGTIFF_TYPE_CF16:
        return 4;
    case GPUGTIFF_TYPE_CF64:
        return 16;
    default:
        return 8;
    }
}

// A handle that frees itself.
template <auto Free> struct Freer {
    template <class T> void operator()(T *handle) const { Free(handle); }
};
using Raster = std::unique_ptr<gpugtiff_raster, Freer<gpugtiff_raster_free>>;
using Batches = std::unique_ptr<gpugtiff_batches, Freer<gpugtiff_batches_free>>;
using Writer = std::unique_ptr<gpugtiff_writer, Freer<gpugtiff_writer_free>>;

struct Arguments {
    std::string from, to;
    std::vector<const char *> options; // ends with a null pointer
    size_t batch_mb = 0;               // 0: the library's own BATCH_MB
};

Raster open(const std::string &path)
{
    gpugtiff_raster *raster = nullptr;
    check(gpugtiff_raster_open(path.c_str(), nullptr, &raster));
    return Raster(raster);
}

gpugtiff_raster_facts facts_of(const Raster &raster)
{
    gpugtiff_raster_facts facts = gpugtiff_raster_facts_init();
    check(gpugtiff_raster_info(raster.get(), 0, &facts));
    return facts;
}

// A file that is like the raster.
Writer create(const Arguments &arguments, const Raster &raster, const gpugtiff_raster_facts &facts)
{
    gpugtiff_spec spec = gpugtiff_spec_init();
    spec.width = facts.width;
    spec.height = facts.height;
    spec.bands = facts.bands;
    spec.type = facts.type;
    if (facts.has_geotransform)
        spec.geotransform = facts.geotransform;
    check(gpugtiff_raster_wkt(raster.get(), &spec.wkt));
    if (facts.nodata.is_set) {
        if (facts.type == GPUGTIFF_TYPE_I64)
            spec.nodata_i64 = &facts.nodata.i64;
        else if (facts.type == GPUGTIFF_TYPE_U64)
            spec.nodata_u64 = &facts.nodata.u64;
        else
            spec.nodata = &facts.nodata.value;
    }
    spec.options = arguments.options.data();
    gpugtiff_writer *writer = nullptr;
    check(gpugtiff_writer_create(arguments.to.c_str(), &spec, &writer));
    return Writer(writer);
}

Batches walk(const Arguments &arguments, const Raster &raster)
{
    gpugtiff_batches *batches = nullptr;
    check(gpugtiff_batches_new(raster.get(), nullptr, arguments.batch_mb, &batches));
    return Batches(batches);
}

void convert(const Arguments &arguments)
{
    const Raster raster = open(arguments.from);
    const gpugtiff_raster_facts facts = facts_of(raster);
    const Batches batches = walk(arguments, raster);
    gpugtiff_window window;
    check(gpugtiff_batches_largest(batches.get(), &window));

    gpugtiff_buffer buffer = gpugtiff_buffer_init();
    buffer.bytes = static_cast<size_t>(window.width) * static_cast<size_t>(window.height) *
                   static_cast<size_t>(facts.bands) * bytes_of(facts.type);
    const std::unique_ptr<unsigned char[]> memory(new unsigned char[buffer.bytes]);
    buffer.data = memory.get();

    // A writer that is freed before it is finished removes its file, so an exception leaves none.
    const Writer writer = create(arguments, raster, facts);
    gpugtiff_result result;
    while ((result = gpugtiff_batches_next(batches.get(), &window)) == GPUGTIFF_OK) {
        check(gpugtiff_batches_read(batches.get(), &window, &buffer));
        check(gpugtiff_writer_write(writer.get(), &window, nullptr, &buffer));
    }
    if (result != GPUGTIFF_DONE)
        check(result);
    check(gpugtiff_writer_finish(writer.get()));
}

bool parse(int argc, char **argv, Arguments &arguments)
{
    std::vector<std::string> paths;
    for (int i = 1; i < argc; i++) {
        const std::string argument = argv[i];
        if (argument == "-co" && i + 1 < argc) {
            arguments.options.push_back(argv[++i]);
        } else if (argument == "-mb" && i + 1 < argc) {
            char *end = nullptr;
            arguments.batch_mb = std::strtoul(argv[++i], &end, 10);
            if (end == argv[i] || *end != '\0')
                return false;
        } else if (argument.size() > 1 && argument[0] == '-') {
            return false;
        } else {
            paths.push_back(argument);
        }
    }
    arguments.options.push_back(nullptr);
    if (paths.size() != 2)
        return false;
    arguments.from = paths[0];
    arguments.to = paths[1];
    return true;
}

} // namespace

int main(int argc, char **argv)
{
    Arguments arguments;
    if (!parse(argc, argv, arguments)) {
        std::fputs("usage: convert [-co NAME=VALUE]... [-mb megabytes] <from> <to.tif>\n"
                   "copies a raster in batches of whole tile rows\n", stderr);
        return 2;
    }
    try {
        convert(arguments);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "convert: %s\n", error.what());
        return 1;
    }
}
