#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <set>

#include "client/digest.h"
#include "client/operation.h"
#include "client/packed_rows.h"
#include "client/row_parts.h"
#include "proto/error_details.h"
#include "tests/unit/client/client_fixture.h"

namespace gemmd {
namespace {

std::string Packed(const MatrixView& x) {
  const int64_t ld = x.leading_dimension == 0 ? x.cols : x.leading_dimension;
  std::string bytes;
  for (int64_t i = 0; i < x.rows; ++i) {
    bytes.append(reinterpret_cast<const char*>(x.data + i * ld), 4 * x.cols);
  }
  return bytes;
}

TEST(DigestTest, IsThatOfThePackedBlocks) {
  // 2 MiB in blocks that begin within rows, and around the block's size.
  const Matrix memory = RandomMatrix(1, 1'000'003);
  for (auto [rows, cols, ld] : {std::array<int64_t, 3>{0, 7, 7},
                                {1, 1, 1},
                                {262'144, 1, 1},
                                {1, 262'145, 0},
                                {999, 1001, 1001},
                                {900, 777, 1001},
                                {3, 200'000, 300'000}}) {
    const MatrixView x = {memory.data(), rows, cols, ld};
    EXPECT_EQ(client::Digest(x), BlockDigest(Packed(x))) << rows << " " << cols;
  }
}

TEST(PackedRowsTest, CopiesAnyRange) {
  const Matrix memory = RandomMatrix(9, 20);
  const MatrixView x = {memory.data(), 9, 13, 20};
  const std::string packed = Packed(x);
  for (size_t first = 0; first <= 9 * 13; ++first) {
    for (size_t count = 0; first + count <= 9 * 13; ++count) {
      std::string copy(4 * count, '\0');
      client::CopyPacked(x, first, count, copy.data());
      ASSERT_EQ(copy, packed.substr(4 * first, 4 * count));
    }
  }
}

TEST(RowPartsTest, CoverEveryRowOnce) {
  for (int64_t rows : {0, 1, 2, 7, 1000, 1001}) {
    for (int connections : {1, 2, 3, 64}) {
      std::vector<std::atomic<int>> seen(rows);
      std::atomic<int> parts = 0;
      const absl::Status status = client::ForEachPart(
          rows, 1 << 20, connections, [&](int64_t first, int64_t count) {
            ++parts;
            for (int64_t i = first; i < first + count; ++i) ++seen[i];
            return absl::OkStatus();
          });
      EXPECT_TRUE(status.ok());
      for (const std::atomic<int>& times : seen) EXPECT_EQ(times, 1);
      EXPECT_EQ(parts, std::clamp<int64_t>(rows / 8, 1, connections));
    }
  }
  EXPECT_TRUE(absl::IsAborted(
      client::ForEachPart(100, 1 << 20, 3, [](int64_t first, int64_t) {
        return first > 0 ? absl::AbortedError("") : absl::OkStatus();
      })));
}

TEST(OperationTest, CancelReachesWhatRunsAndWhatBeginsLater) {
  client::Operation operation(absl::InfiniteDuration());
  int cancels = 0;
  {
    client::Operation::Step step(&operation, [&] { ++cancels; });
  }
  client::Operation::Step step(&operation, [&] { ++cancels; });
  operation.Cancel();
  EXPECT_EQ(cancels, 1);
  client::Operation::Step later(&operation, [&] { ++cancels; });
  EXPECT_EQ(cancels, 2);
  operation.SleepFor(absl::InfiniteDuration());  // returns
}

TEST(TransferTest, ALargeMatrixIsSplitOverAllConnectionsInChunks) {
  FakeServer server(Answer);
  const auto client =
      NewClient({.address = server.address(), .connections = 3});
  const Matrix large = RandomMatrix(6'500, 1'001);  // 24.8 MiB
  const auto resident = client->Upload(large.view());
  ASSERT_TRUE(resident.ok()) << resident.status();
  EXPECT_EQ(server.seen().uploads, 3);
  // A part goes where the least is under way, so one that is done early may
  // leave its connection to another.
  EXPECT_GE(server.peers().size(), 2u);
  EXPECT_EQ(server.seen().uploaded_bytes, 4u * 6'500 * 1'001);
  EXPECT_LE(server.seen().largest_chunk, 1u << 20);
  const auto back = client->Download(*resident);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(SameBits(*back, large));
  EXPECT_EQ(server.seen().downloads, 3);
}

class NamedUploadTest : public ::testing::Test {
 protected:
  absl::Status Upload(bool digest = true) {
    const auto resident =
        client_->Upload(matrix_.view(), {.id = "x", .digest = digest});
    if (!resident.ok()) return resident.status();
    const auto back = client_->Download(*resident);
    EXPECT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(back.ok() && SameBits(*back, matrix_));
    return absl::OkStatus();
  }

  FakeServer server_{Answer};
  const std::unique_ptr<Client> client_ =
      NewClient({.address = server_.address(),
                 .connections = 2,
                 .retry = QuickRetries()});
  const Matrix matrix_ = RandomMatrix(4'500, 1'001);  // 17.2 MiB: two parts
};

TEST_F(NamedUploadTest, TriesOnlyThePartAgainThatBroke) {
  server_.FailUploads(1, absl::UnavailableError("broken"));
  EXPECT_TRUE(Upload().ok());
  EXPECT_EQ(server_.seen().uploads, 3);
}

TEST_F(NamedUploadTest, GoesOnWhereAnAnswerWasLost) {
  server_.LoseUploadAnswers(2);
  const absl::Status status = Upload();
  EXPECT_TRUE(status.ok()) << status;
}

// The server has not noticed yet that the connection of a part is gone.
TEST(TransferTest, ANamedUploadWaitsUntilTheRowsOfABrokenStreamAreFree) {
  const absl::Status overlap =
      InvalidFieldError("header.first_row", "rows overlap");
  FakeServer server(Answer);
  const auto client =
      NewClient({.address = server.address(), .retry = QuickRetries()});
  server.FailUploads(1, absl::UnavailableError("broken"));
  server.FailUploads(2, overlap);
  const Matrix x = RandomMatrix(3, 3);
  EXPECT_TRUE(client->Upload(x.view(), {.id = "x"}).ok());
  EXPECT_EQ(server.seen().uploads, 4);
  // What they say in the end is what broke.
  server.FailUploads(1, absl::UnavailableError("broken"));
  server.FailUploads(100, overlap);
  EXPECT_TRUE(absl::IsUnavailable(
      client->Upload(x.view(), {.id = "y", .digest = false}).status()));
}

TEST_F(NamedUploadTest, OverlappingAnotherUploadIsAnErrorAtOnce) {
  server_.FailUploads(2, InvalidFieldError("header.first_row", "overlap"));
  EXPECT_TRUE(absl::IsInvalidArgument(Upload()));
  EXPECT_EQ(server_.seen().uploads, 2);
}

TEST(TransferTest, AnUploadEndsAtItsDeadline) {
  FakeServer server(Answer);
  server.FailUploads(1000, absl::UnavailableError("draining"));
  const auto client =
      NewClient({.address = server.address(), .retry = {.max_attempts = 1000}});
  const absl::Time begin = absl::Now();
  const Matrix x = RandomMatrix(3, 3);
  const absl::Status status =
      client->Upload(x.view(), {.timeout = absl::Milliseconds(300)}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

TEST(TransferTest, NoServerIsSaidAsInAProduct) {
  const auto client = NewClient(
      {.address = "unix:/tmp/gemmd_no_such_socket", .retry = QuickRetries()});
  const Matrix x = RandomMatrix(3, 3);
  const absl::Status status = client->Upload(x.view()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("no server at unix:/tmp/gemmd_no_such"));
}

}  // namespace
}  // namespace gemmd
