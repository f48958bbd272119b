// What the tests of the client have in common.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gemmd/client.h"
#include "tests/unit/client/fake_server.h"

namespace gemmd {

// Uniform in [-1, 1]; the seed is printed once.
Matrix RandomMatrix(int64_t rows, int64_t cols);

// What the fake server answers, by the same arithmetic.
std::vector<float> Expected(const Matrix& a, const Matrix& b);

bool SameBits(const Matrix& c, const std::vector<float>& expected);
bool SameBits(const Matrix& c, const Matrix& expected);

// A handler that multiplies.
absl::Status Answer(grpc::ServerContext&, const v1::SgemmRequest& request,
                    v1::SgemmResponse* response);

std::unique_ptr<Client> NewClient(const ClientOptions& options);

// Waits until `condition` holds; false after 20 s.
bool Eventually(const std::function<bool()>& condition);

RetryPolicy QuickRetries();

}  // namespace gemmd
