#include "transport/module.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::transport {
namespace {

// Says no when told to, by a setting that has another meaning elsewhere: the test needs no setting of its own then.
Result<std::unique_ptr<Transport>> create(const Config& config, const Clock& clock, const Log& log) {
  if (config.tcp_sockets == 13) return fail(ErrorCode::kUnavailable, "no device of this kind");
  log.info("the test module was asked for a transport");
  return tcp::TcpTransport::create(config, clock, log);
}

}  // namespace
}  // namespace clustar::transport

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {clustar::transport::ModuleEntry::kAbi, sizeof(clustar::Config),
                                                        CLUSTAR_VERSION, clustar::transport::create};
