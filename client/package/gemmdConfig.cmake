# find_package(gemmd CONFIG) defines the target gemmd::client.
include(CMakeFindDependencyMacro)
find_dependency(absl CONFIG)
include("${CMAKE_CURRENT_LIST_DIR}/gemmdTargets.cmake")
