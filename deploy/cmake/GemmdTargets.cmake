# How a target of this project is made: one library a folder, PRIVATE flags, an
# ALIAS gemmd::<name>, includes from the project's root.

option(GEMMD_WERROR "Warnings are errors" OFF)

function(gemmd_compile_options target)
  # Designated initialisers leave the rest at their defaults on purpose.
  set(warnings -Wall -Wextra -Wno-unused-parameter
    -Wno-missing-field-initializers)
  if(GEMMD_WERROR)
    list(APPEND warnings -Werror)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    list(APPEND warnings -Wthread-safety)
  endif()
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")
  if(GEMMD_WITH_CUDA)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall>")
  endif()
  if(GEMMD_SANITIZE)
    target_compile_definitions(${target} PRIVATE GEMMD_SANITIZED)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${GEMMD_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
    target_link_options(${target} PRIVATE -fsanitize=${GEMMD_SANITIZE})
  endif()
endfunction()

# The current folder, from the project's root: tests/unit/kernels.
function(gemmd_folder result)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR
    BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE folder)
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

# gemmd_library(name SOURCES ... [HEADERS ...] [PUBLIC libs...] [PRIVATE libs...])
# HEADERS (paths from the current folder) are compiled on their own by
# all_verify_interface_header_sets.
function(gemmd_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;PUBLIC;PRIVATE" ${ARGN})
  add_library(gemmd_${name} STATIC ${ARG_SOURCES})
  add_library(gemmd::${name} ALIAS gemmd_${name})
  target_sources(gemmd_${name} PUBLIC FILE_SET HEADERS
    BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${ARG_HEADERS})
  target_include_directories(gemmd_${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(gemmd_${name}
    PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  set_target_properties(gemmd_${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON)
  gemmd_compile_options(gemmd_${name})
endfunction()

# gemmd_program(name SOURCES ... LIBS ...)
# `cmake --install BUILD --component C` copies it: the programs (C = programs) to
# bin/, those of tests/gpu and tests/bench (C = gpu_tests, benchmarks) to folders
# of that name. There they look for libraries in ../lib. The target gemmd_bundle
# builds all of these.
function(gemmd_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  gemmd_compile_options(${name})
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  gemmd_folder(folder)
  if(folder MATCHES "^tests/gpu")
    install(TARGETS ${name} RUNTIME DESTINATION gpu_tests
      COMPONENT gpu_tests EXCLUDE_FROM_ALL)
  elseif(folder MATCHES "^tests/bench")
    install(TARGETS ${name} RUNTIME DESTINATION benchmarks
      COMPONENT benchmarks EXCLUDE_FROM_ALL)
  elseif(NOT folder MATCHES "^tests")
    install(TARGETS ${name} RUNTIME COMPONENT programs)
  else()
    return()
  endif()
  if(NOT TARGET gemmd_bundle)
    add_custom_target(gemmd_bundle)
  endif()
  add_dependencies(gemmd_bundle ${name})
endfunction()

# gemmd_test(name SOURCES ... LIBS ... [LABELS ...] [TIMEOUT s]): a GoogleTest
# program, run by ctest as one test. Its folder, for instance
# tests/unit/server/schedule, is among its labels.
function(gemmd_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  gemmd_program(${name} SOURCES ${ARG_SOURCES}
    LIBS ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  gemmd_folder(folder)
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS};${folder}")
endfunction()
