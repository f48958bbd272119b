# Finds the CUDA Toolkit where it is installed, also off the PATH, and enables
# the CUDA language. Sets GEMMD_WITH_CUDA.
set(GEMMD_WITH_CUDA OFF)
if(GEMMD_CUDA STREQUAL "OFF")
  message(STATUS "gemmd: building for the CPU alone (GEMMD_CUDA=OFF)")
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(GEMMD_NVCC nvcc
    HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda/bin /opt/cuda/bin
    PATH_SUFFIXES bin)
  if(GEMMD_NVCC)
    set(CMAKE_CUDA_COMPILER "${GEMMD_NVCC}")
  endif()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # H100 and H200; a GPU of another kind is named on the command line.
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(GEMMD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "gemmd: GEMMD_CUDA=ON but no nvcc was found on the PATH,"
      " in CUDA_HOME, /usr/local/cuda or /opt/cuda. Install the CUDA Toolkit"
      " (12.4 or newer), name it with -DCMAKE_CUDA_COMPILER, or use"
      " -DGEMMD_CUDA=OFF.")
  endif()
  message(STATUS "gemmd: no CUDA Toolkit found, building for the CPU alone"
    " (name one with -DCMAKE_CUDA_COMPILER=/path/to/nvcc)")
  return()
endif()

enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
  message(FATAL_ERROR "gemmd: CUDA Toolkit ${CMAKE_CUDA_COMPILER_VERSION} at"
    " ${CMAKE_CUDA_COMPILER}; 12.4 or newer is needed. Upgrade it or use"
    " -DGEMMD_CUDA=OFF.")
endif()
# CMake 3.25 does not know nvcc's flag for C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
# CMake 3.25.1, Debian 12's, speaks of a CUDA::nvToolsExt to projects that want
# 3.25, and fails with CUDA 13, which has none.
set(gemmd_wanted_cmake "${CMAKE_MINIMUM_REQUIRED_VERSION}")
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_MINIMUM_REQUIRED_VERSION "${gemmd_wanted_cmake}")
set(GEMMD_WITH_CUDA ON)
message(STATUS "gemmd: CUDA ${CMAKE_CUDA_COMPILER_VERSION} for"
  " ${CMAKE_CUDA_ARCHITECTURES}")
