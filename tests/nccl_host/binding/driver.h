#pragma once

namespace nccl_host {

// A function of the driver, or nullptr where it is not emulated: NCCL then takes it for an old driver.
void* DriverEntryPoint(const char* name);

}  // namespace nccl_host
