// An all-to-all by the messages of ParaExpress's communicator.
#pragma once

#include <cstddef>
#include <memory>

#include "bench/trainer/collective.h"
#include "paraexpress/communicator/communicator.h"
#include "transport/base/time.h"

namespace clustar::bench::trainer {

// The blocks of `send` and `recv` as Collective::all_to_all() has them. It fails after `limit`.
std::unique_ptr<Pending> start_exchange(paraexpress::Communicator& communicator, paraexpress::Member self,
                                        const std::byte* send, std::byte* recv, const Collective::BlockSizes& bytes,
                                        Duration limit);

}  // namespace clustar::bench::trainer
