# Which directory the plugin goes to. Read when the build is configured, to say so, and again
# when it is installed, as `cmake --install --prefix` may name another prefix then.

# asked: what the user gave, if anything, absolute or below the prefix; gdals: GDAL's own plugin
# directory; ours: the one below the prefix.
function(choose_plugin_dir prefix asked gdals ours out_dir out_reason)
    cmake_path(IS_PREFIX prefix "${gdals}" NORMALIZE gdals_is_below)
    if(asked)
        cmake_path(ABSOLUTE_PATH asked BASE_DIRECTORY ${prefix} NORMALIZE OUTPUT_VARIABLE dir)
        set(reason "as GPUGTIFF_PLUGIN_DIR says")
    elseif(gdals_is_below)
        set(dir ${gdals})
        set(reason "GDAL's own")
    elseif(prefix STREQUAL "/usr/local")
        # CMake's default, nobody asked for it: an installation for the whole system.
        set(dir ${gdals})
        set(reason "GDAL's own, outside the prefix ${prefix}")
    else()
        set(dir ${ours})
        set(reason "the prefix is not GDAL's, which looks in ${gdals}: configure with -DGPUGTIFF_PLUGIN_DIR=${gdals}, or set GDAL_DRIVER_PATH=${ours}:${gdals} for programs that use this GDAL")
    endif()
    set(${out_dir} ${dir} PARENT_SCOPE)
    set(${out_reason} ${reason} PARENT_SCOPE)
endfunction()
