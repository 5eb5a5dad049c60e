# Cargo, a recent rustc, and GDAL with headers: a sentence for each that is missing, before
# cargo ends in a page of errors. Sets CARGO_EXECUTABLE and gdal_version.

set(rust_hint "install the current stable Rust with rustup (https://rustup.rs), or 'rustup update stable'")
set(cargo_places HINTS ENV CARGO_HOME "$ENV{HOME}/.cargo" PATH_SUFFIXES bin)
find_program(CARGO_EXECUTABLE cargo ${cargo_places} DOC "Rust's cargo")
find_program(RUSTC_EXECUTABLE rustc ${cargo_places} DOC "Rust's compiler")
find_program(PKG_CONFIG_EXECUTABLE NAMES pkg-config pkgconf DOC "pkg-config")
mark_as_advanced(CARGO_EXECUTABLE RUSTC_EXECUTABLE PKG_CONFIG_EXECUTABLE)

if(NOT CARGO_EXECUTABLE OR NOT RUSTC_EXECUTABLE)
    message(FATAL_ERROR "cargo was not found: Rust ${rust_version} or newer is needed;\n${rust_hint}")
endif()
# Asked of rustc, not of cargo: an old cargo can't even parse our Cargo.toml.
execute_process(COMMAND ${RUSTC_EXECUTABLE} --version OUTPUT_VARIABLE answer ERROR_VARIABLE answer)
string(REGEX MATCH "rustc ([0-9.]+)" _ "${answer}")
set(rustc_version "${CMAKE_MATCH_1}")
if(rustc_version VERSION_LESS rust_version)
    message(FATAL_ERROR
        "${RUSTC_EXECUTABLE} is too old (${answer}): ${rust_version} or newer is needed;\n${rust_hint}")
endif()

# build.rs and gdal-sys ask it too.
if(NOT PKG_CONFIG_EXECUTABLE)
    message(FATAL_ERROR
        "pkg-config was not found, which tells where GDAL is (Debian: apt-get install pkg-config)")
endif()
execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --modversion gdal
    OUTPUT_VARIABLE gdal_version OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT gdal_version)
    message(FATAL_ERROR "GDAL's headers were not found: pkg-config knows no gdal;\n"
        "install libgdal-dev (Debian) or gdal-devel (Fedora), or set PKG_CONFIG_PATH")
endif()
if(gdal_version VERSION_LESS 3.6)
    message(FATAL_ERROR "GDAL ${gdal_version} is too old: 3.6 or newer is needed")
endif()
message(STATUS "GDAL ${gdal_version}, rustc ${rustc_version}")
