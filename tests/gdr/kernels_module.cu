// All kernels of gdr/kernels as one module, as a hook of a framework would have them.
#include "gdr/kernels/importance.cu"
#include "gdr/kernels/rescale.cu"
#include "gdr/kernels/sum.cu"
#include "gdr/kernels/zero_ranges.cu"
