#include "bench/trainer/graph/device_math.h"

#ifdef CLUSTAR_HAVE_ONEDNN
#include "bench/trainer/graph/onednn_math.h"
#else
#include "bench/trainer/graph/plain_math.h"
#endif

namespace clustar::bench::trainer::graph {

#ifdef CLUSTAR_HAVE_ONEDNN
std::unique_ptr<DeviceMath> make_cpu_math() { return std::make_unique<OneDnnMath>(); }
#else
std::unique_ptr<DeviceMath> make_cpu_math() { return std::make_unique<PlainMath>(); }
#endif

std::string cpu_math_name() { return make_cpu_math()->name(); }

}  // namespace clustar::bench::trainer::graph
