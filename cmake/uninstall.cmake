# Removes what install_manifest.txt lists, links included, and the directories that were made for
# it, if they are empty by now. DESTDIR as when it was installed.
#
#   cmake -D build=<build directory> -P cmake/uninstall.cmake

set(manifest "${build}/install_manifest.txt")
if(NOT EXISTS "${manifest}")
    message(FATAL_ERROR "Nothing is installed from ${build}: there is no install_manifest.txt")
endif()
file(STRINGS "${manifest}" files)
foreach(file ${files})
    set(file "$ENV{DESTDIR}${file}")
    if(EXISTS "${file}" OR IS_SYMLINK "${file}")
        file(REMOVE "${file}")
        if(EXISTS "${file}" OR IS_SYMLINK "${file}")
            message(FATAL_ERROR "${file} can't be removed")
        endif()
        message(STATUS "Removed: ${file}")
    else()
        message(STATUS "Not there: ${file}")
    endif()
endforeach()

# Those of other installations stay in the list.
set(list "${build}/install_directories.txt")
if(EXISTS "${list}")
    file(STRINGS "${list}" directories)
    set(left "")
    list(REVERSE directories) # the deepest first
    foreach(dir ${directories})
        file(GLOB content "${dir}/*" "${dir}/.*")
        if(IS_DIRECTORY "${dir}" AND NOT IS_SYMLINK "${dir}" AND NOT content)
            file(REMOVE_RECURSE "${dir}")
        elseif(EXISTS "${dir}")
            list(PREPEND left "${dir}")
        endif()
    endforeach()
    list(JOIN left "\n" left)
    file(WRITE "${list}" "${left}\n")
endif()
file(REMOVE "${manifest}")
