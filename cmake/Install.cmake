# What is installed, and the target that takes it away again.

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/GPUGTiff)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

execute_process(COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/plugin-path.sh --gdal
    OUTPUT_VARIABLE gdal_plugin_dir OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
include(${CMAKE_CURRENT_LIST_DIR}/PluginDir.cmake)
choose_plugin_dir("${CMAKE_INSTALL_PREFIX}" "${GPUGTIFF_PLUGIN_DIR}" "${gdal_plugin_dir}"
    "${CMAKE_INSTALL_FULL_LIBDIR}/gdalplugins" plugin_dir reason)
message(STATUS "Plugin: ${plugin_dir} (${reason})")
configure_file(${CMAKE_CURRENT_LIST_DIR}/install-plugin.cmake.in install-plugin.cmake @ONLY)
install(SCRIPT ${CMAKE_CURRENT_BINARY_DIR}/install-plugin.cmake)

install(FILES ${staged}/${library} ${staged}/${soname} ${staged}/libgpugtiff.so
    DESTINATION ${CMAKE_INSTALL_LIBDIR})
# `cmake --install --strip` knows no library but those it built itself; libdir and plugin_dir are
# install-plugin's.
install(CODE "
    if(CMAKE_INSTALL_DO_STRIP)
        execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-unneeded \"\$ENV{DESTDIR}\${libdir}/${library}\"
            \"\$ENV{DESTDIR}\${plugin_dir}/${loader}\" COMMAND_ERROR_IS_FATAL ANY)
    endif()")
install(FILES include/gpugtiff.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/GPUGTiffConfig.cmake.in GPUGTiffConfig.cmake
    INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(GPUGTiffConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/GPUGTiffConfig.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/GPUGTiffConfigVersion.cmake DESTINATION ${package_dir})

# pkg-config finds the prefix from where gpugtiff.pc lies, so that the tree can be moved.
cmake_path(ABSOLUTE_PATH pkgconfig_dir BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE from)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${from} OUTPUT_VARIABLE up_to_prefix)
set(pc_prefix "\${prefix}")
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY ${pc_prefix} OUTPUT_VARIABLE pc_libdir)
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_INCLUDEDIR BASE_DIRECTORY ${pc_prefix}
    OUTPUT_VARIABLE pc_includedir)
configure_file(${CMAKE_CURRENT_LIST_DIR}/gpugtiff.pc.in gpugtiff.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gpugtiff.pc DESTINATION ${pkgconfig_dir})

add_custom_target(uninstall
    COMMAND ${CMAKE_COMMAND} -D build=${CMAKE_BINARY_DIR} -P ${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake
    VERBATIM)
