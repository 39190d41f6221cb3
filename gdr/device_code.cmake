# clustar_device_code(<target> <symbol> <module.cu>): a library with `extern const Image <symbol>` in namespace
# clustar::gdr::launch, the module as nvcc compiles it for sm_75 to sm_90 and, as PTX, for later GPUs. Without nvcc the
# image is empty: the module runs on an emulated device only.
include_guard()

# A sanitizer's build never meets a GPU.
if(CLUSTAR_WITH_CUDA AND NOT CLUSTAR_SANITIZE AND NOT CLUSTAR_FUZZ)
  find_package(CUDAToolkit 11.8 QUIET)
  find_program(CLUSTAR_NVCC nvcc HINTS ${CUDAToolkit_BIN_DIR} NO_CACHE)
endif()
if(NOT CLUSTAR_NVCC)
  message(STATUS "no code for GPUs is built: CLUSTAR_WITH_CUDA is OFF, no nvcc, or a sanitizer; kernels run on the emulated device only")
endif()

function(clustar_device_code target symbol module)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}.cc)
  set(embedded "")
  set(image "{nullptr, 0}")
  if(CLUSTAR_NVCC)
    set(fatbin ${CMAKE_CURRENT_BINARY_DIR}/${target}.fatbin)
    set(architectures "")
    foreach(sm 75 80 86 89)
      list(APPEND architectures -gencode arch=compute_${sm},code=sm_${sm})
    endforeach()
    list(APPEND architectures "-gencode" "arch=compute_90,code=[sm_90,compute_90]")
    # Its table of registers and spills lies beside it.
    add_custom_command(
      OUTPUT ${fatbin}
      COMMAND ${CMAKE_COMMAND} -E env ${CLUSTAR_NVCC} -ccbin ${CMAKE_CXX_COMPILER} -std=c++17 -I${CMAKE_SOURCE_DIR} -fatbin
              ${architectures} -Xptxas -v -MD -MF ${fatbin}.d ${CMAKE_CURRENT_SOURCE_DIR}/${module} -o ${fatbin}
              2> ${fatbin}.registers.txt
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${module}
      DEPFILE ${fatbin}.d VERBATIM
      COMMENT "nvcc: ${module}")
    set(embedded "asm(\".section .rodata\\n.balign 16\\n${symbol}_begin:\\n.incbin \\\"${fatbin}\\\"\\n${symbol}_end:\\n.byte 0\\n.previous\");\nextern \"C\" __attribute__((visibility(\"hidden\"))) const unsigned char ${symbol}_begin[], ${symbol}_end[];\n")
    string(REPLACE "${symbol}_begin:" ".globl ${symbol}_begin\\n.hidden ${symbol}_begin\\n${symbol}_begin:" embedded "${embedded}")
    string(REPLACE "${symbol}_end:" ".globl ${symbol}_end\\n.hidden ${symbol}_end\\n${symbol}_end:" embedded "${embedded}")
    set(image "{${symbol}_begin, static_cast<std::size_t>(${symbol}_end - ${symbol}_begin)}")
    set_property(SOURCE ${source} APPEND PROPERTY OBJECT_DEPENDS ${fatbin})
  endif()
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT
"#include <cstddef>

#include \"gdr/launch/image.h\"

@embedded@
namespace clustar::gdr::launch {

extern const Image @symbol@;
const Image @symbol@ = @image@;

}  // namespace clustar::gdr::launch
")
  add_library(${target} STATIC ${source})
  # In a unity build a source's OBJECT_DEPENDS counts for nothing, and an old image stays.
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(${target} PUBLIC clustar_options)
  if(CLUSTAR_NVCC)
    set_target_properties(${target} PROPERTIES CLUSTAR_REGISTERS ${fatbin}.registers.txt)
  endif()
endfunction()
