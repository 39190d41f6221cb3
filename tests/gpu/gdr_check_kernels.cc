// PTX, so that neither nvcc nor the CUDA runtime is needed: the driver compiles it for the GPU that it finds.
#include "tests/gpu/gdr_check_parts.h"

namespace clustar::gdr_check {

const char* const kKernels = R"(
.version 7.0
.target sm_75
.address_size 64

// Each thread copies 16 B at a time, a grid's width apart.
.visible .entry clustar_copy(.param .u64 to, .param .u64 from, .param .u64 count)
{
  .reg .pred %done;
  .reg .b32 %block, %blocks, %width, %thread, %a, %b, %c, %d;
  .reg .b64 %to, %from, %count, %at, %step, %wide, %source, %target;
  ld.param.u64 %to, [to];
  ld.param.u64 %from, [from];
  ld.param.u64 %count, [count];
  cvta.to.global.u64 %to, %to;
  cvta.to.global.u64 %from, %from;
  mov.u32 %block, %ctaid.x;
  mov.u32 %blocks, %nctaid.x;
  mov.u32 %width, %ntid.x;
  mov.u32 %thread, %tid.x;
  mul.wide.u32 %at, %block, %width;
  cvt.u64.u32 %wide, %thread;
  add.u64 %at, %at, %wide;
  mul.wide.u32 %step, %blocks, %width;
copy_more:
  setp.ge.u64 %done, %at, %count;
  @%done bra copy_end;
  shl.b64 %wide, %at, 4;
  add.u64 %source, %from, %wide;
  add.u64 %target, %to, %wide;
  ld.global.v4.u32 {%a, %b, %c, %d}, [%source];
  st.global.v4.u32 [%target], {%a, %b, %c, %d};
  add.u64 %at, %at, %step;
  bra copy_more;
copy_end:
  ret;
}

// Looks at a word of host memory until it is not zero, or often enough.
.visible .entry clustar_wait(.param .u64 flag, .param .u64 most)
{
  .reg .pred %end;
  .reg .b32 %seen;
  .reg .b64 %flag, %most, %looks;
  ld.param.u64 %flag, [flag];
  ld.param.u64 %most, [most];
  cvta.to.global.u64 %flag, %flag;
  mov.u64 %looks, 0;
wait_more:
  ld.volatile.global.u32 %seen, [%flag];
  setp.ne.u32 %end, %seen, 0;
  @%end bra wait_end;
  add.u64 %looks, %looks, 1;
  setp.lt.u64 %end, %looks, %most;
  @%end bra wait_more;
wait_end:
  ret;
}
)";

}  // namespace clustar::gdr_check
