#include "server/rpc/client_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/error_details.h"

namespace gemmd {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ClientStatusTest, AnInternalMessageStaysInside) {
  for (const absl::Status& status :
       {absl::InternalError("cudaMemcpyAsync failed at 0x7f00"),
        absl::UnknownError("cudaMemcpyAsync failed at 0x7f00")}) {
    const absl::Status told = ForClient(status);
    EXPECT_EQ(told.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(told.message()), Not(HasSubstr("cuda")));
    EXPECT_TRUE(told.GetPayload("type.googleapis.com/google.rpc.ErrorInfo")
                    .has_value());
  }
}

TEST(ClientStatusTest, WhatWasMadeForClientsIsTold) {
  for (const absl::Status& status :
       {absl::OkStatus(), absl::CancelledError("you did"),
        FaultError("DEVICE_FAULT", "the device failed", {}),
        InvalidFieldError("a", "a is missing")}) {
    EXPECT_EQ(ForClient(status), status);
  }
}

}  // namespace
}  // namespace gemmd
