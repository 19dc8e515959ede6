# CMake: -DCMAKE_TOOLCHAIN_FILE=PREFIX/lib/cmake/runahead/toolchain.cmake compiles a project with the out-of-core pass.
# RUNAHEAD_LINK tells what of its programs is put out of core: any of heap, static and mmap, in a list.
# CMAKE_BUILD_TYPE has to be one that optimises; otherwise nothing is inserted.
get_filename_component(_runahead_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(RUNAHEAD_LINK "heap" CACHE STRING "What is put out of core: heap, static, mmap")
set(CMAKE_C_COMPILER "${_runahead_prefix}/bin/runahead-cc")
set(CMAKE_CXX_COMPILER "${_runahead_prefix}/bin/runahead-c++")
set(CMAKE_Fortran_COMPILER "${_runahead_prefix}/bin/runahead-fc")
set(_runahead_flags "")
foreach(_runahead_part IN LISTS RUNAHEAD_LINK)
  string(APPEND _runahead_flags " --runahead-${_runahead_part}")
endforeach()
set(CMAKE_EXE_LINKER_FLAGS_INIT "${_runahead_flags}") # not appended: CMake reads this file more than once
# For what CMake tries out as well.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RUNAHEAD_LINK)
