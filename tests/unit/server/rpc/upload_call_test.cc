// UploadMatrix, DownloadMatrix, ListMatrices and DeleteMatrix over a real
// connection.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "tests/unit/server/rpc/matrix_fixture.h"

namespace gemmd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kAlice[] = "0123456789abcdef0123456789abcdef";
constexpr char kBob[] = "fedcba9876543210fedcba9876543210";

std::string RandomBytes(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string result(bytes, '\0');
  for (char& c : result) c = static_cast<char>(random());
  return result;
}

class UploadCallTest : public MatrixFixture {
 protected:
  UploadCallTest() { StartServer(); }

  // What a header alone leads to.
  absl::Status HeaderStatus(
      const std::function<void(v1::UploadHeader&)>& change) {
    v1::UploadHeader header = Header("x", 4, 4);
    change(header);
    return Upload(header, "").status();
  }

  const uint64_t seed_ = std::random_device()();
  testing::ScopedTrace trace_{__FILE__, __LINE__, absl::StrCat("seed ", seed_)};
};

TEST_F(UploadCallTest, WhatGoesUpComesDownWhateverTheChunks) {
  const std::string packed = RandomBytes(700 * 900 * 4, seed_);  // 2.4 MiB
  int n = 0;
  for (const size_t chunk : {kChunk, kChunk - 3, size_t{100'001}}) {
    const std::string id = absl::StrCat("m", n++);
    const auto up = Upload(Header(id, 700, 900), packed, "", chunk);
    ASSERT_TRUE(up.ok()) << up.status();
    EXPECT_EQ(up->matrix_id(), id);
    EXPECT_TRUE(up->complete());
    EXPECT_FALSE(up->already_held());
    const auto down = Fetch(id);
    ASSERT_TRUE(down.ok()) << down.status();
    EXPECT_TRUE(down->packed == packed);
    EXPECT_EQ(down->header.rows(), 700);
    EXPECT_EQ(down->header.cols(), 900);
    EXPECT_EQ(down->header.first_row(), 0);
    EXPECT_EQ(down->header.row_count(), 700);
    EXPECT_THAT(down->chunks,
                ElementsAre(kChunk, kChunk, packed.size() - 2 * kChunk));
  }
  ExpectNothingHeld();
}

TEST_F(UploadCallTest, ARangeOfRowsComesDown) {
  const std::string packed = RandomBytes(10 * 7 * 4, seed_);
  ASSERT_TRUE(Upload(Header("x", 10, 7), packed).ok());
  const auto middle = Fetch("x", 3, 4);
  ASSERT_TRUE(middle.ok());
  EXPECT_EQ(middle->packed, packed.substr(3 * 28, 4 * 28));
  EXPECT_EQ(middle->header.first_row(), 3);
  EXPECT_EQ(middle->header.row_count(), 4);
  EXPECT_EQ(Fetch("x", 9)->packed, packed.substr(9 * 28));
  for (const auto& [first, count, field] :
       {std::tuple(uint64_t{10}, uint64_t{0}, "first_row"),
        {3, 8, "row_count"},
        {9, ~uint64_t{0}, "row_count"},
        {~uint64_t{0}, 1, "first_row"}}) {
    const absl::Status status = Fetch("x", first, count).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(BadField(status), field) << first << ' ' << count;
  }
  ExpectNothingHeld();
}

TEST_F(UploadCallTest, SeveralStreamsCarryOneMatrix) {
  const std::string packed = RandomBytes(40 * 100 * 4, seed_);
  UploadStream first(*stub_), second(*stub_);
  v1::UploadHeader header = Header("x", 40, 100);
  header.set_digest(Digest(packed));
  header.set_first_row(0);
  header.set_row_count(25);
  ASSERT_TRUE(first.SendHeader(header));
  header.set_first_row(25);
  header.set_row_count(0);
  ASSERT_TRUE(second.SendHeader(header));
  ASSERT_TRUE(second.SendChunk(packed.substr(25 * 400)));
  const auto half = second.Finish();
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_FALSE(half->complete());
  EXPECT_FALSE(List().at("x").complete());
  EXPECT_EQ(Fetch("x").status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(first.SendChunk(packed.substr(0, 25 * 400)));
  const auto whole = first.Finish();
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(whole->complete());
  EXPECT_EQ(Fetch("x")->packed, packed);
}

TEST_F(UploadCallTest, AMatrixThatIsHeldAlreadyIsAnsweredAtOnce) {
  const std::string packed = RandomBytes(3 << 20, seed_);
  v1::UploadHeader header = Header("x", 3, 1 << 18);
  header.set_digest(Digest(packed));
  ASSERT_FALSE(Upload(header, packed)->already_held());
  header.set_matrix_id("y");
  UploadStream stream(*stub_);
  ASSERT_TRUE(stream.SendHeader(header));
  // Without the end of the stream, nor a byte of the matrix.
  const absl::Status status = FromGrpcStatus(stream.writer->Finish());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(stream.response.already_held());
  EXPECT_TRUE(stream.response.complete());
  EXPECT_TRUE(Fetch("y")->packed == packed);
  // Another client has nothing of it.
  EXPECT_FALSE(Upload(header, packed, kBob)->already_held());
  ExpectNothingHeld();
}

TEST_F(UploadCallTest, BadHeadersNameTheirField) {
  const auto expect = [&](absl::string_view field, auto change) {
    const absl::Status status = HeaderStatus(change);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(BadField(status), field) << status;
  };
  using Header = v1::UploadHeader;
  expect("header.rows", [](Header& h) { h.set_rows(uint64_t{1} << 63); });
  expect("header.cols", [](Header& h) { h.set_cols(~uint64_t{0}); });
  expect("header.matrix_id", [](Header& h) { h.set_matrix_id("a/b"); });
  expect("header.matrix_id",
         [](Header& h) { h.set_matrix_id(std::string(129, 'a')); });
  expect("header.matrix_id", [](Header& h) {
    h.clear_matrix_id();
    h.set_row_count(2);
  });
  expect("header.digest", [](Header& h) { h.set_digest("short"); });
  expect("header.digest", [](Header& h) { h.set_digest(std::string(33, 1)); });
  expect("header.ttl", [](Header& h) { h.mutable_ttl(); });
  expect("header.ttl", [](Header& h) { h.mutable_ttl()->set_seconds(-1); });
  expect("header.ttl", [](Header& h) { h.mutable_ttl()->set_nanos(-1); });
  expect("header.first_row", [](Header& h) { h.set_first_row(4); });
  expect("header.first_row", [](Header& h) {
    h.set_first_row(~uint64_t{0});
    h.set_row_count(2);  // wraps
  });
  expect("header.row_count", [](Header& h) { h.set_row_count(5); });
  expect("header.row_count", [](Header& h) {
    h.set_first_row(1);
    h.set_row_count(~uint64_t{0});
  });
  EXPECT_THAT(List(), testing::IsEmpty());
  ExpectNothingHeld();
}

TEST_F(UploadCallTest, WhatIsTooMuchIsOutOfRange) {
  using Header = v1::UploadHeader;
  // With the limit, as details.
  const auto expect_too_much = [&](auto change) {
    const absl::Status status = HeaderStatus(change);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
    EXPECT_EQ(ErrorReason(status), "LIMIT_EXCEEDED") << status;
  };
  expect_too_much(
      [](Header& h) { h.mutable_ttl()->set_seconds(100LL * 365 * 24 * 3600); });
  // Larger than the store; more than 2^64 bytes, which wraps to few.
  expect_too_much([](Header& h) { h.set_rows(kStoreBytes); });
  expect_too_much([](Header& h) {
    h.set_rows(uint64_t{1} << 62);
    h.set_cols(uint64_t{1} << 62);
  });
  ExpectNothingHeld();
}

TEST_F(UploadCallTest, MessagesOutOfOrderAreRefused) {
  const std::string row(16, 'r');
  const auto expect = [&](absl::string_view field, absl::string_view text,
                          auto send) {
    UploadStream stream(*stub_);
    send(stream);
    const absl::Status status = stream.Finish().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(BadField(status), field);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  expect("header", "a chunk came first",
         [&](UploadStream& s) { s.SendChunk(row); });
  expect("header", "ended before its header", [&](UploadStream&) {});
  expect("header", "second header", [&](UploadStream& s) {
    s.SendHeader(Header("a", 4, 4));
    s.SendHeader(Header("a", 4, 4));
  });
  expect("chunk", "with 32 bytes of its rows missing", [&](UploadStream& s) {
    s.SendHeader(Header("b", 4, 4));
    s.SendChunk(row);
    s.SendChunk(row);
  });
  expect("chunk", "64 bytes; 48 are missing", [&](UploadStream& s) {
    s.SendHeader(Header("c", 4, 4));
    s.SendChunk(row);
    s.SendChunk(row + row + row + row);
  });
  expect("chunk", "a chunk has 1 bytes; 0 are missing", [&](UploadStream& s) {
    s.SendHeader(Header("d", 4, 4));
    s.SendChunk(row + row + row + row);
    s.SendChunk("x");
  });
  expect("chunk", "at most 1048576", [&](UploadStream& s) {
    s.SendHeader(Header("e", 4, 1 << 20));
    s.SendChunk(std::string(kChunk + 1, 'x'));
  });
  expect("request", "neither header nor chunk",
         [&](UploadStream& s) { s.writer->Write(v1::UploadMatrixRequest()); });
  ExpectNothingHeld();
  // None of them can be used.
  for (const auto& [id, matrix] : List()) EXPECT_FALSE(matrix.complete()) << id;
}

TEST_F(UploadCallTest, RowRangesOfOneMatrixMustNotOverlapNorDisagree) {
  v1::UploadHeader header = Header("x", 4, 4);
  header.set_row_count(2);
  UploadStream first(*stub_);
  ASSERT_TRUE(first.SendHeader(header));
  WaitFor([&] { return List().contains("x"); });
  const auto second = [&](auto change) {
    v1::UploadHeader other = header;
    change(other);
    UploadStream stream(*stub_);
    stream.SendHeader(other);
    return stream.Finish().status().code();
  };
  using Header = v1::UploadHeader;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(second([](Header& h) { h.set_first_row(1); }), kInvalid);
  EXPECT_EQ(second([](Header& h) { h.set_rows(5); }), kInvalid);
  EXPECT_EQ(second([](Header& h) { h.set_cols(5); }), kInvalid);
  EXPECT_EQ(second([](Header& h) { h.set_digest(std::string(32, 'd')); }),
            kInvalid);
  // The first goes on all the same.
  ASSERT_TRUE(first.SendChunk(std::string(32, 'a')));
  EXPECT_TRUE(first.Finish().ok());
}

TEST_F(UploadCallTest, AnotherDigestThanAnnouncedDropsTheMatrix) {
  const std::string packed = RandomBytes(64, seed_);
  v1::UploadHeader header = Header("x", 4, 4);
  header.set_digest(Digest(packed + "x"));
  const absl::Status status = Upload(header, packed).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BadField(status), "header.digest");
  EXPECT_THAT(List(), testing::IsEmpty());
  ExpectNothingHeld();
}

TEST_F(UploadCallTest, AnIdThatIsTakenIsNotOverwritten) {
  ASSERT_TRUE(Upload(Header("x", 4, 4), std::string(64, 'a')).ok());
  EXPECT_EQ(Upload(Header("x", 4, 4), std::string(64, 'b')).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Fetch("x")->packed, std::string(64, 'a'));
}

TEST_F(UploadCallTest, TheServerMintsIdsThatNobodyGuesses) {
  const auto one = Upload(Header("", 2, 2), std::string(16, 'a'));
  const auto two = Upload(Header("", 2, 2), std::string(16, 'a'));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_GE(one->matrix_id().size(), 32);
  EXPECT_NE(one->matrix_id(), two->matrix_id());
  EXPECT_TRUE(Fetch(one->matrix_id()).ok());
}

TEST_F(UploadCallTest, AnEmptyMatrixNeedsNoChunk) {
  const auto up = Upload(Header("x", 0, 5), "");
  ASSERT_TRUE(up.ok()) << up.status();
  EXPECT_TRUE(up->complete());
  const auto down = Fetch("x");
  ASSERT_TRUE(down.ok()) << down.status();
  EXPECT_EQ(down->packed, "");
  EXPECT_EQ(down->header.cols(), 5);
}

TEST_F(UploadCallTest, NoMoreIsReadThanTheDeviceTakes) {
  backend_->gate().CloseCopies();
  const std::string packed = RandomBytes(12 * kChunk, seed_);
  auto up = std::async(std::launch::async, [&] {
    return Upload(Header("x", 12, kChunk / 4), packed);
  });
  WaitFor([&] { return backend_->gate().waiting_copies() == 4; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(backend_->gate().waiting_copies(), 4);
  EXPECT_EQ(backend_->staging().used_bytes(), 4 * kChunk);
  backend_->gate().OpenCopies();
  EXPECT_TRUE(up.get().ok());
  EXPECT_TRUE(Fetch("x")->packed == packed);
  ExpectNothingHeld();
}

TEST_F(UploadCallTest, ADownloadThatIsNotReadHoldsAWindow) {
  const std::string packed = RandomBytes(28 * kChunk, seed_);
  ASSERT_TRUE(Upload(Header("x", 28, kChunk / 4), packed).ok());
  WaitFor([&] { return backend_->staging().used_bytes() == 0; });
  grpc::ClientContext context;
  v1::DownloadMatrixRequest request;
  request.set_matrix_id("x");
  auto reader = stub_->DownloadMatrix(&context, request);
  v1::DownloadMatrixResponse response;
  ASSERT_TRUE(reader->Read(&response));
  WaitFor([&] { return backend_->staging().used_bytes() >= 4 * kChunk; });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  // Four, and what gRPC has in its buffers on both sides.
  EXPECT_LE(backend_->staging().used_bytes(), 16 * kChunk);
  std::string down;
  while (reader->Read(&response)) down += response.chunk();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(down == packed);
  ExpectNothingHeld();
}

// A client that gives up: before the header, between chunks, with copies under
// way, while it awaits the answer.
TEST_F(UploadCallTest, AnAbandonedUploadLeavesNothingBehind) {
  const std::string packed(8 * kChunk, 'x');
  v1::UploadHeader header = Header("x", 8, kChunk / 4);
  for (int stage = 0; stage < 4; ++stage) {
    SCOPED_TRACE(stage);
    if (stage == 2) backend_->gate().CloseCopies();
    {
      UploadStream stream(*stub_);
      if (stage >= 1) stream.SendHeader(header);
      if (stage >= 1) stream.SendChunk(packed.substr(0, kChunk));
      if (stage == 2) {
        stream.SendChunk(packed.substr(0, kChunk));
        WaitFor([&] { return backend_->gate().waiting_copies() == 2; });
      }
      if (stage == 3) {
        for (int i = 1; i < 8; ++i) stream.SendChunk(packed.substr(0, kChunk));
        stream.writer->WritesDone();
      }
      stream.context.TryCancel();
      const grpc::Status status = stream.writer->Finish();
      EXPECT_TRUE(status.ok() ||
                  status.error_code() == grpc::StatusCode::CANCELLED);
    }
    backend_->gate().OpenCopies();
    ExpectNothingHeld();
    // Its rows may be sent again, by whom they belong to.
    if (stage < 3) {
      WaitFor([&] { return Upload(header, packed).ok(); });
      EXPECT_TRUE(Fetch("x")->packed == packed);
    }
    Delete("x").IgnoreError();
  }
}

TEST_F(UploadCallTest, AnAbandonedDownloadLeavesNothingBehind) {
  ASSERT_TRUE(
      Upload(Header("x", 16, kChunk / 4), std::string(16 * kChunk, 'x')).ok());
  for (int stage = 0; stage < 3; ++stage) {
    if (stage == 1) backend_->gate().CloseCopies();
    {
      grpc::ClientContext context;
      v1::DownloadMatrixRequest request;
      request.set_matrix_id("x");
      auto reader = stub_->DownloadMatrix(&context, request);
      v1::DownloadMatrixResponse response;
      if (stage > 0) reader->Read(&response);
      if (stage == 1) {
        WaitFor([&] { return backend_->gate().waiting_copies() >= 4; });
      }
      if (stage == 2) reader->Read(&response);
      context.TryCancel();
      while (reader->Read(&response)) {
      }
      EXPECT_FALSE(reader->Finish().ok());
    }
    backend_->gate().OpenCopies();
    ExpectNothingHeld();
  }
  EXPECT_TRUE(Delete("x").ok());
  WaitFor([&] { return store_->used_bytes() == 0; });
}

TEST_F(UploadCallTest, DeletingUnderADownloadTakesNothingFromIt) {
  const std::string packed = RandomBytes(8 * kChunk, seed_);
  ASSERT_TRUE(Upload(Header("x", 8, kChunk / 4), packed).ok());
  backend_->gate().CloseCopies();
  auto down = std::async(std::launch::async, [&] { return Fetch("x"); });
  WaitFor([&] { return backend_->gate().waiting_copies() == 4; });
  EXPECT_GE(List().at("x").uses(), 1);
  EXPECT_TRUE(Delete("x").ok());
  EXPECT_EQ(Delete("x").code(), absl::StatusCode::kNotFound);
  backend_->gate().OpenCopies();
  const auto got = down.get();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(got->packed == packed);
  WaitFor([&] { return store_->used_bytes() == 0; });
}

TEST_F(UploadCallTest, MatricesAreTheirClientsAlone) {
  ASSERT_TRUE(Upload(Header("x", 4, 4), std::string(64, 'a'), kAlice).ok());
  for (const std::string other : {"", kBob}) {
    EXPECT_THAT(List(other), testing::IsEmpty());
    EXPECT_EQ(Fetch("x", 0, 0, other).status().code(),
              absl::StatusCode::kNotFound);
    EXPECT_EQ(Delete("x", other).code(), absl::StatusCode::kNotFound);
  }
  const v1::Matrix matrix = List(kAlice).at("x");
  EXPECT_EQ(matrix.rows(), 4);
  EXPECT_EQ(matrix.cols(), 4);
  EXPECT_TRUE(matrix.complete());
  EXPECT_GE(matrix.device_bytes(), 64);
  EXPECT_THAT(matrix.devices(), ElementsAre(0));
  EXPECT_GT(matrix.expires_in().seconds(), 0);
  EXPECT_TRUE(Delete("x", kAlice).ok());
}

TEST_F(UploadCallTest, BadNamesAndMissingOnesAreToldApart) {
  for (const char* bad : {"", "a b", "a/b"}) {
    for (const absl::Status& status : {Fetch(bad).status(), Delete(bad)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
      EXPECT_EQ(BadField(status), "matrix_id");
    }
  }
  for (const absl::Status& status : {Fetch("x").status(), Delete("x")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_TRUE(status.GetPayload("type.googleapis.com/google.rpc.ResourceInfo")
                    .has_value());
  }
}

TEST_F(UploadCallTest, ADrainEndsUploadsAndLetsDownloadsFinish) {
  const std::string packed = RandomBytes(8 * kChunk, seed_);
  ASSERT_TRUE(Upload(Header("x", 8, kChunk / 4), packed).ok());
  UploadStream stream(*stub_);
  ASSERT_TRUE(stream.SendHeader(Header("y", 4, 4)));
  WaitFor([&] { return List().contains("y"); });
  backend_->gate().CloseCopies();
  auto down = std::async(std::launch::async, [&] { return Fetch("x"); });
  WaitFor([&] { return backend_->gate().waiting_copies() == 4; });
  server_->RefuseNew(MonotonicClock::now() + std::chrono::seconds(5));
  const absl::Status status = FromGrpcStatus(stream.writer->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(RetryDelay(status).has_value());
  EXPECT_EQ(Upload(Header("z", 1, 1), "1234").status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Fetch("x").status().code(), absl::StatusCode::kUnavailable);
  backend_->gate().OpenCopies();
  ASSERT_TRUE(down.get().ok());
  EXPECT_TRUE(
      server_->Shutdown(MonotonicClock::now() + std::chrono::seconds(5)));
}

TEST_F(UploadCallTest, AFullBudgetRefusesWithRetryInfo) {
  auto held = admission_->Admit("other", admission_options_.max_bytes - kChunk);
  ASSERT_TRUE(held.ok());
  const absl::Status status =
      Upload(Header("x", 8, kChunk / 4), std::string(8 * kChunk, 'x')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelay(status).has_value());
  EXPECT_TRUE(Upload(Header("x", 1, 4), std::string(16, 'x')).ok());
}

}  // namespace
}  // namespace gemmd
