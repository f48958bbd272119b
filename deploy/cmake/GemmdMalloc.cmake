# gemmd::malloc: what the server's programs allocate with. TCMalloc where it is
# found (server/rpc/README.md says what it brings), else the C library's malloc;
# sanitizers bring their own.

option(GEMMD_TCMALLOC "Link the server with TCMalloc where it is found" ON)

add_library(gemmd_malloc INTERFACE)
add_library(gemmd::malloc ALIAS gemmd_malloc)
if(GEMMD_TCMALLOC AND NOT GEMMD_SANITIZE AND NOT GEMMD_FUZZ)
  # Debian's package has no file for the linker's -l, but in one that also brings
  # profilers.
  find_library(GEMMD_TCMALLOC_LIBRARY
    NAMES tcmalloc_minimal libtcmalloc_minimal.so.4)
  if(GEMMD_TCMALLOC_LIBRARY)
    target_link_libraries(gemmd_malloc INTERFACE "${GEMMD_TCMALLOC_LIBRARY}")
  else()
    message(STATUS "TCMalloc not found: the server uses the C library's malloc")
  endif()
endif()
