// The policies that order coflows by a number and serve them by MADD; each in its own file. All but fifo divide the
// number by the coflow's weight.
#pragma once

#include <memory>

#include "coflow/core/madd.h"

namespace clustar::coflow {

std::unique_ptr<Scheduler> make_fifo(const Table& table, const MaddOptions& options);
std::unique_ptr<Scheduler> make_scf(const Table& table, const MaddOptions& options);
std::unique_ptr<Scheduler> make_ncf(const Table& table, const MaddOptions& options);
std::unique_ptr<Scheduler> make_lcf(const Table& table, const MaddOptions& options);
std::unique_ptr<Scheduler> make_sebf(const Table& table, const MaddOptions& options);

}  // namespace clustar::coflow
