#include "tests/unit/client/fake_server.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"

namespace gemmd {

absl::Status FakeServer::Run(grpc::ServerContext& context,
                             v1::SgemmRequest request,
                             v1::SgemmResponse* response) {
  MaybeLoseMatrices();
  const bool resident = request.output().has_resident();
  const std::string output_id = request.output().resident().matrix_id();
  const bool in_place =
      resident && (request.a().matrix_id() == output_id ||
                   request.b().matrix_id() == output_id ||
                   (request.has_c() && request.c().matrix_id() == output_id));
  {
    std::lock_guard<std::mutex> lock(mu_);
    seen_.largest_request =
        std::max(seen_.largest_request, request.ByteSizeLong());
    seen_.request_ids.push_back(request.request_id());
    if (in_place && applied_.count(request.request_id()) > 0) {
      response->mutable_execution()->set_replayed(true);
    }
  }
  absl::Status status = matrices_.Resolve(request.mutable_a());
  if (status.ok()) status = matrices_.Resolve(request.mutable_b());
  if (status.ok() && request.has_c()) {
    status = matrices_.Resolve(request.mutable_c());
  }
  const bool replayed = response->execution().replayed();
  if (status.ok()) status = handler_(context, request, response);
  if (!status.ok()) return status;
  response->mutable_execution()->set_replayed(replayed);
  if (resident) {
    response->set_matrix_id(output_id);
    if (!replayed) {
      matrices_.Put(output_id, response->rows(), response->cols(),
                    response->c());
    }
    response->clear_c();
  }
  std::lock_guard<std::mutex> lock(mu_);
  if (in_place) applied_.insert(request.request_id());
  if (lost_answers_ > 0) {
    --lost_answers_;
    return absl::UnavailableError("the answer was lost");
  }
  return absl::OkStatus();
}

grpc::Status FakeServer::SgemmStream(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::SgemmStreamResponse, v1::SgemmStreamRequest>*
        stream) {
  NoteCaller("SgemmStream", *context);
  bool breaks = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    ++seen_.streams;
    peers_.insert(context->peer());
    breaks = breaking_streams_-- > 0;
  }
  const absl::Cleanup ended = [this] {
    std::lock_guard<std::mutex> lock(mu_);
    ++seen_.ended_streams;
  };
  v1::SgemmStreamRequest item;
  while (stream->Read(&item)) {
    if (breaks) return ToGrpcStatus(absl::UnavailableError("broken"));
    {
      std::lock_guard<std::mutex> lock(mu_);
      ++seen_.streamed;
    }
    v1::SgemmStreamResponse answer;
    answer.set_sequence(item.sequence());
    const absl::Status status =
        Run(*context, item.request(), answer.mutable_response());
    if (!status.ok()) *answer.mutable_error() = ToRpcStatus(status);
    stream->Write(answer);
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::UploadMatrix(
    grpc::ServerContext* context,
    grpc::ServerReader<v1::UploadMatrixRequest>* reader,
    v1::UploadMatrixResponse* response) {
  NoteCaller("UploadMatrix", *context);
  v1::UploadMatrixRequest request;
  if (!reader->Read(&request) || !request.has_header()) {
    return ToGrpcStatus(absl::InvalidArgumentError("no header"));
  }
  const v1::UploadHeader header = request.header();
  {
    std::lock_guard<std::mutex> lock(mu_);
    ++seen_.uploads;
    peers_.insert(context->peer());
  }
  absl::StatusOr<bool> done = matrices_.BeginUpload(header);
  if (!done.ok()) return ToGrpcStatus(done.status());
  response->set_matrix_id(header.matrix_id());
  response->set_already_held(*done);
  response->set_complete(*done);
  if (*done) return grpc::Status::OK;
  std::string numbers;
  while (reader->Read(&request)) {
    numbers += request.chunk();
    std::lock_guard<std::mutex> lock(mu_);
    seen_.uploaded_bytes += request.chunk().size();
    seen_.largest_chunk = std::max(seen_.largest_chunk, request.chunk().size());
  }
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!upload_errors_.empty()) {
      const absl::Status error = upload_errors_.front();
      upload_errors_.pop_front();
      return ToGrpcStatus(error);
    }
  }
  done = matrices_.FinishUpload(header, numbers);
  if (!done.ok()) return ToGrpcStatus(done.status());
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (lost_upload_answers_ > 0) {
      --lost_upload_answers_;
      return ToGrpcStatus(absl::UnavailableError("the answer was lost"));
    }
  }
  response->set_complete(*done);
  return grpc::Status::OK;
}

grpc::Status FakeServer::DownloadMatrix(
    grpc::ServerContext* context, const v1::DownloadMatrixRequest* request,
    grpc::ServerWriter<v1::DownloadMatrixResponse>* writer) {
  NoteCaller("DownloadMatrix", *context);
  {
    std::lock_guard<std::mutex> lock(mu_);
    ++seen_.downloads;
  }
  MaybeLoseMatrices();
  const auto entry = matrices_.Find(request->matrix_id());
  if (!entry.ok()) return ToGrpcStatus(entry.status());
  const uint64_t count = request->row_count() == 0
                             ? entry->rows - request->first_row()
                             : request->row_count();
  v1::DownloadMatrixResponse response;
  v1::DownloadHeader* header = response.mutable_header();
  header->set_rows(entry->rows);
  header->set_cols(entry->cols);
  header->set_first_row(request->first_row());
  header->set_row_count(count);
  writer->Write(response);
  // Chunks that end within numbers and rows.
  constexpr size_t kChunk = 100'003;
  const std::string numbers = entry->numbers.substr(
      4 * request->first_row() * entry->cols, 4 * count * entry->cols);
  for (size_t at = 0; at < numbers.size(); at += kChunk) {
    response.set_chunk(numbers.substr(at, kChunk));
    writer->Write(response);
  }
  return grpc::Status::OK;
}

}  // namespace gemmd
