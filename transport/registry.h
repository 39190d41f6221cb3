// Chooses the transport: the best that this build and machine can do, or the one that was asked for. Says why each
// better one was not chosen.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gdr/device_copy.h"
#include "transport/api/context.h"
#include "transport/api/transport.h"
#include "transport/base/config.h"
#include "transport/io/packet_backend.h"
#include "transport/module.h"

namespace clustar::transport {

struct Selection {
  std::vector<Module> modules;  // whose code the transport runs; they outlive it
  std::unique_ptr<Transport> transport;
  std::vector<std::string> refused;  // "verbs: <reason>" for each better or required transport that was not taken
};

// The context's clock outlives the selection. Errors: a named or required transport that does not work here (with the
// reason), none that does, or faults to inject (Config::inject_faults) that are no faults or not for mlt. With
// Config::gdr = staged or Config::gdr_emulate a transport that does not reach GPU memory is wrapped (transport/staged);
// that this cannot be done is a reason not to take it.
Result<Selection> select_transport(const TransportContext& context);

// The packets that CLUSTAR_IO names, for programs of ours that make a transport by themselves; `modules` get the
// library that holds them, if one does. Error: no such packets, or what they lack.
Result<std::unique_ptr<io::PacketBackend>> open_packets(const Config& config, const Log& log,
                                                        std::vector<Module>& modules);

// Copies between GPU and host memory, whatever the transport reaches: libclustar-cuda.so's, or emulated ones where
// Config::gdr_emulate is on. Error: there are none here, and why.
Result<gdr::MakeCopy> gpu_copies(const Config& config);

}  // namespace clustar::transport
