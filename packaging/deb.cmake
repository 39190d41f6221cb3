# Debian packages by CPack: one per component (scripts/package builds and tests them).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME clustar)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR clustar)
set(CPACK_PACKAGE_CONTACT "clustar maintainers <maintainers@clustar.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_COMPONENTS_ALL plugin tools dev)
set(CPACK_STRIP_FILES ${CLUSTAR_INSTALL_STRIPPED})
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${CLUSTAR_DEBIAN_REVISION})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# dpkg-shlibdeps takes what it finds here for a part of the package.
set(brought ${CMAKE_CURRENT_BINARY_DIR}/brought-by-others)
file(MAKE_DIRECTORY ${brought})
# NVIDIA's driver brings libcuda.so.1, and no package of Debian's main: the module that needs it says so when it is opened.
if(TARGET clustar-cuda)
  file(CREATE_LINK ${CUDA_cuda_driver_LIBRARY} ${brought}/libcuda.so.1 SYMBOLIC)
endif()
# libfabric opens libclustar-fi.so, so it is there then, and may be a vendor's (EFA, Slingshot).
if(TARGET clustar-fi)
  file(CREATE_LINK ${pkgcfg_lib_LIBFABRIC_fabric} ${brought}/libfabric.so.1 SYMBOLIC)
endif()
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${brought})
set(same_version "(= ${PROJECT_VERSION}-${CLUSTAR_DEBIAN_REVISION})")

set(CPACK_DEBIAN_PLUGIN_PACKAGE_NAME clustar-plugin)
set(CPACK_DEBIAN_PLUGIN_PACKAGE_SECTION net)
set(CPACK_COMPONENT_PLUGIN_DESCRIPTION "NCCL net plugin for traffic of distributed training
NCCL loads it as NCCL_NET_PLUGIN=clustar. It carries messages between hosts
over RDMA NICs, over TCP, or over a transport of its own that uses many paths
and may lose a bounded, counted part of gradients where the user allows it.

The same library is NCCL's profiler and tuner plugin. What needs further
libraries lies in modules, which are opened when they are asked for.")
# The loader looks for the plugin in one of its default folders, cache or not; a cache that there is learns of it.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PLUGIN_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/triggers)
set(CPACK_DEBIAN_PLUGIN_PACKAGE_RECOMMENDS "libssl3, ibverbs-providers")
set(CPACK_DEBIAN_PLUGIN_PACKAGE_SUGGESTS "clustar-tools, libfabric1")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME clustar-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION net)
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "test and measure NCCL net plugins without GPUs
The command clustar tests any NCCL net plugin against what NCCL relies on,
measures it, trains a reference model over it, emulates hosts and switches on
one machine, and says what keeps a machine from being fast.

Also simulations of clustar's transport, and the modules that inject faults
and compare recoveries in experiments.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "clustar-plugin ${same_version}")
set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "iproute2")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "gnuplot-nox, man-db, bash-completion")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME clustar-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEV_DESCRIPTION "header of the NCCL net plugin clustar
A training program asks the plugin in its process what was lost of each
collective, and tells it when a phase of training allows no loss: clustar.h,
with files for CMake and pkg-config.")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "clustar-plugin ${same_version}")
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
include(CPack)
