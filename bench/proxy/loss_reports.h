// Which bytes of a send the transport did without, as clustar's public C API tells (nccl_plugin/clustar.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::proxy {

struct LostBytes {
  std::uint64_t transfer = 0;  // network transfer of the send, from 0
  std::uint64_t offset = 0;    // within the transfer
  std::uint64_t bytes = 0;
};

// `number` counts the sends from one rank to another in the communicator, from 0. Called by the progress thread.
class LossReports {
 public:
  virtual ~LossReports() = default;
  // Of the `number`-th send of rank `sender` to this rank, once its receive is done. Empty: nothing is missing.
  virtual Result<std::vector<LostBytes>> missing_from(std::uint64_t comm_id, int sender, std::uint64_t number) = 0;
  // Of the `number`-th send of this rank to rank `receiver`, once it is done.
  virtual Result<std::vector<LostBytes>> lost_to(std::uint64_t comm_id, int receiver, std::uint64_t number) = 0;
};

// Of the library of a net plugin. Any plugin will do: from one without clustarApi_v1 nothing is ever missing.
// Errors: the library cannot be opened; later, an answer that the API does not have.
Result<std::unique_ptr<LossReports>> plugin_loss_reports(const std::string& path);

}  // namespace clustar::bench::proxy
