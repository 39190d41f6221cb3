# Builds for a system with an older glibc, of which CLUSTAR_SYSROOT is a tree (scripts/build-older makes one of Debian 11).
# clang, because this system's g++ would bring its own libstdc++, made for its own glibc.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CLUSTAR_SYSROOT)
if(NOT IS_DIRECTORY "${CLUSTAR_SYSROOT}/usr/include")
  message(FATAL_ERROR "CLUSTAR_SYSROOT is '${CLUSTAR_SYSROOT}': give a system's tree, with g++ installed; "
                      "scripts/build-older makes one")
endif()
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_SYSROOT ${CLUSTAR_SYSROOT})
set(CMAKE_C_COMPILER clang)
set(CMAKE_CXX_COMPILER clang++)
set(CMAKE_C_FLAGS_INIT "--gcc-toolchain=${CLUSTAR_SYSROOT}/usr")
set(CMAKE_CXX_FLAGS_INIT "--gcc-toolchain=${CLUSTAR_SYSROOT}/usr -include ${CMAKE_CURRENT_LIST_DIR}/older_libstdcxx.h")
# Programs are this system's; headers and libraries never.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
