//! `include/gpugtiff.h` is what src/api declares: it is made anew and compared.
//! `GPUGTIFF_HEADER=write` (`make header`) writes it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// In the order that a reader wants them in.
const ROOMS: [&str; 9] =
    ["result", "kind", "request", "raster", "read", "batches", "tensor", "writer", "ask"];

/// Structs that begin with their size.
const SIZED: [&str; 5] = ["selection", "buffer", "raster_facts", "spec", "device_facts"];

/// DLPack's structs as in dlpack.h 1.0, for programs that do not have that header.
const DLPACK: &str = r#"
/*
 * DLPack (https://github.com/dmlc/dlpack), the structs of version 1. A program that has
 * dlpack/dlpack.h includes it before this header; one that wants the names only defines
 * GPUGTIFF_NO_DLPACK.
 */
#if defined(DLPACK_DLPACK_H_) || defined(GPUGTIFF_NO_DLPACK)
/* A dlpack.h from before 1.0 has but one of them, and a name may be given twice. */
typedef struct DLManagedTensor DLManagedTensor;
typedef struct DLManagedTensorVersioned DLManagedTensorVersioned;
#else
#ifdef __cplusplus
extern "C" {
#endif
/** Of the structs: the same within a major version. */
typedef struct {
    uint32_t major;
    uint32_t minor;
} DLPackVersion;
/** Where memory is. There are more of these than are used here. */
#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3,
    kDLCUDAManaged = 13
} DLDeviceType;
/** A device. */
typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;
/** Kinds of numbers. */
typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U, kDLComplex = 5U } DLDataTypeCode;
/** The type of a sample. */
typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;
/** Memory with a shape. Strides are in samples. */
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;
/** A tensor with its deleter, before DLPack 1.0. */
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
/** A tensor with its deleter, since DLPack 1.0. */
typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;
#ifdef __cplusplus
}
#endif
#endif
"#;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The version of the header, by which programs can tell what it declares.
fn version() -> String {
    let parts = [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ];
    let mut text = String::from(
        "\n/** The version of this header; gpugtiff_version_number() is the library's. */\n",
    );
    for (name, value) in parts {
        writeln!(text, "#define GPUGTIFF_VERSION_{name} {value}").unwrap();
    }
    text.push_str(
        "#define GPUGTIFF_VERSION_NUMBER                                                     \\\n    \
         (GPUGTIFF_VERSION_MAJOR * 10000 + GPUGTIFF_VERSION_MINOR * 100 + GPUGTIFF_VERSION_PATCH)\n",
    );
    text
}

/// Functions rather than macros: C and C++ agree on no initialiser that neither warns about.
fn initialisers() -> String {
    let mut text = String::new();
    for name in SIZED {
        let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "An" } else { "A" };
        writeln!(
            text,
            "\n/** {article} gpugtiff_{name} with its size set and all else 0. */\n\
             static inline gpugtiff_{name} gpugtiff_{name}_init(void)\n{{\n    \
             gpugtiff_{name} made;\n    memset(&made, 0, sizeof(made));\n    \
             made.size = sizeof(made);\n    return made;\n}}"
        )
        .unwrap();
    }
    text
}

/// Safety sections are for Rust.
fn without_safety(source: &str) -> String {
    let mut kept = String::new();
    let mut skipping = false;
    for line in source.lines() {
        skipping = match line.trim_start() {
            "///" if skipping => true,
            "/// # Safety" => true,
            text => skipping && text.starts_with("///"),
        };
        if !skipping {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    // The empty line before the section.
    kept.replace("///\n#[unsafe(no_mangle)]", "#[unsafe(no_mangle)]")
}

fn header() -> String {
    let mut config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    config.after_includes = Some(version() + DLPACK);
    let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("header");
    std::fs::create_dir_all(&scratch).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for room in ROOMS {
        let source = std::fs::read_to_string(root().join(format!("src/api/{room}.rs"))).unwrap();
        let copy = scratch.join(format!("{room}.rs"));
        std::fs::write(&copy, without_safety(&source)).unwrap();
        builder = builder.with_src(copy);
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    polished(&String::from_utf8(text).unwrap())
}

/// What cbindgen has no setting for: initialisers inside the guard, negative numbers in
/// parentheses, and nothing but ASCII.
fn polished(text: &str) -> String {
    let end = "#endif  /* GPUGTIFF_H */";
    let mut made = String::new();
    for line in text.trim_end().lines() {
        match line.split_once(" -") {
            Some((head, number)) if head.starts_with("#define") => {
                writeln!(made, "{head} (-{number})").unwrap();
            }
            _ if line == end => writeln!(made, "{}\n{end}", initialisers().trim_start()).unwrap(),
            _ => writeln!(made, "{line}").unwrap(),
        }
    }
    made.replace('…', "...")
}

fn differs(path: &Path, wanted: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text != wanted) || !path.exists()
}

#[test]
fn the_header_is_what_the_sources_declare() {
    let (path, made) = (root().join("include/gpugtiff.h"), header());
    if std::env::var("GPUGTIFF_HEADER").is_ok_and(|what| what == "write") {
        std::fs::write(&path, &made).unwrap();
    }
    assert!(!differs(&path, &made), "include/gpugtiff.h is not what src/api says: `make header`");
}
