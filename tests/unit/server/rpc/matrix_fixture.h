// A server with a client that keeps matrices on it.

#pragma once

#include <openssl/sha.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "proto/status.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace gemmd {

// The digest of the wire contract.
inline std::string Digest(const std::string& packed) {
  constexpr size_t kBlock = size_t{1} << 20;
  const auto sha256 = [](const std::string& bytes) {
    std::string hash(SHA256_DIGEST_LENGTH, '\0');
    SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
           reinterpret_cast<unsigned char*>(hash.data()));
    return hash;
  };
  std::string hashes;
  for (size_t at = 0; at < packed.size(); at += kBlock) {
    hashes += sha256(packed.substr(at, kBlock));
  }
  return sha256(hashes);
}

// The field that a BadRequest names; "" where there is none.
inline std::string BadField(const absl::Status& status) {
  const auto payload =
      status.GetPayload("type.googleapis.com/google.rpc.BadRequest");
  google::rpc::BadRequest detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload)) ||
      detail.field_violations_size() != 1) {
    return "";
  }
  return detail.field_violations(0).field();
}

class MatrixFixture : public RpcFixture {
 protected:
  static constexpr size_t kChunk = size_t{1} << 20;

  // A stream that a test feeds by hand.
  struct UploadStream {
    explicit UploadStream(v1::GemmService::Stub& stub, std::string client = "")
        : client(std::move(client)) {
      if (!this->client.empty()) {
        context.AddMetadata("gemmd-client", this->client);
      }
      writer = stub.UploadMatrix(&context, &response);
    }
    bool SendHeader(const v1::UploadHeader& header) {
      v1::UploadMatrixRequest request;
      *request.mutable_header() = header;
      return writer->Write(request);
    }
    bool SendChunk(const std::string& bytes) {
      v1::UploadMatrixRequest request;
      request.set_chunk(bytes);
      return writer->Write(request);
    }
    absl::StatusOr<v1::UploadMatrixResponse> Finish() {
      writer->WritesDone();
      const absl::Status status = FromGrpcStatus(writer->Finish());
      if (!status.ok()) return status;
      return response;
    }

    const std::string client;
    grpc::ClientContext context;
    v1::UploadMatrixResponse response;
    std::unique_ptr<grpc::ClientWriter<v1::UploadMatrixRequest>> writer;
  };

  static v1::UploadHeader Header(const std::string& id, uint64_t rows,
                                 uint64_t cols) {
    v1::UploadHeader header;
    header.set_matrix_id(id);
    header.set_rows(rows);
    header.set_cols(cols);
    return header;
  }

  // Sends `packed`, all of the header's rows, in chunks.
  absl::StatusOr<v1::UploadMatrixResponse> Upload(
      const v1::UploadHeader& header, const std::string& packed,
      const std::string& client = "", size_t chunk = kChunk) {
    UploadStream stream(*stub_, client);
    stream.SendHeader(header);
    for (size_t at = 0; at < packed.size(); at += chunk) {
      if (!stream.SendChunk(packed.substr(at, chunk))) break;
    }
    return stream.Finish();
  }

  // Keeps the operand's numbers under `id` and makes it name them.
  void Keep(v1::Operand& operand, const std::string& id) {
    const auto kept =
        Upload(Header(id, operand.rows(), operand.cols()), operand.data());
    ASSERT_TRUE(kept.ok()) << kept.status();
    ASSERT_TRUE(kept->complete());
    operand.set_matrix_id(id);
  }

  struct Download {
    v1::DownloadHeader header;
    std::string packed;
    std::vector<size_t> chunks;
  };
  absl::StatusOr<Download> Fetch(const std::string& id, uint64_t first_row = 0,
                                 uint64_t row_count = 0,
                                 const std::string& client = "") {
    grpc::ClientContext context;
    if (!client.empty()) context.AddMetadata("gemmd-client", client);
    v1::DownloadMatrixRequest request;
    request.set_matrix_id(id);
    request.set_first_row(first_row);
    request.set_row_count(row_count);
    auto reader = stub_->DownloadMatrix(&context, request);
    Download download;
    v1::DownloadMatrixResponse response;
    bool first = true;
    while (reader->Read(&response)) {
      EXPECT_EQ(response.has_header(), first);
      if (first) {
        download.header = response.header();
      } else {
        download.chunks.push_back(response.chunk().size());
        download.packed += response.chunk();
      }
      first = false;
    }
    const absl::Status status = FromGrpcStatus(reader->Finish());
    if (!status.ok()) return status;
    return download;
  }

  std::map<std::string, v1::Matrix> List(const std::string& client = "") {
    grpc::ClientContext context;
    if (!client.empty()) context.AddMetadata("gemmd-client", client);
    v1::ListMatricesResponse response;
    EXPECT_TRUE(
        stub_->ListMatrices(&context, v1::ListMatricesRequest(), &response)
            .ok());
    std::map<std::string, v1::Matrix> matrices;
    std::string last;
    for (const v1::Matrix& matrix : response.matrices()) {
      EXPECT_LT(last, matrix.matrix_id());  // in order of id
      last = matrix.matrix_id();
      matrices[last] = matrix;
    }
    return matrices;
  }

  absl::Status Delete(const std::string& id, const std::string& client = "") {
    grpc::ClientContext context;
    if (!client.empty()) context.AddMetadata("gemmd-client", client);
    v1::DeleteMatrixRequest request;
    request.set_matrix_id(id);
    v1::DeleteMatrixResponse response;
    return FromGrpcStatus(stub_->DeleteMatrix(&context, request, &response));
  }

  absl::StatusOr<v1::SgemmResponse> Multiply(const v1::SgemmRequest& request) {
    grpc::ClientContext context;
    v1::SgemmResponse response;
    const grpc::Status status = stub_->Sgemm(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }
};

}  // namespace gemmd
