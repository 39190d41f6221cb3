// Measures what core/probe.h works a region map out of, between the ranks of a mesh.
#pragma once

#include <functional>
#include <span>

#include "paraexpress/core/probe.h"
#include "paraexpress/engine/farewell.h"
#include "paraexpress/engine/mesh.h"
#include "paraexpress/engine/waits.h"
#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::paraexpress {

// Of each number the largest that any rank gave; all ranks come back with the same.
using AgreeOnMost = std::function<std::optional<Blame>(std::span<double>)>;

// All ranks call it together, with nothing else under way. It takes about kProbeTime beside the round trips, each wait
// in it as long as `waits` says; all ranks come back with the same bits.
inline constexpr Duration kProbeTime = std::chrono::seconds(2);
tl::expected<Probed, Blame> probe(Mesh& mesh, Farewells& farewells, Member self, std::uint32_t ranks,
                                  const Waits& waits, const AgreeOnMost& agree);

}  // namespace clustar::paraexpress
