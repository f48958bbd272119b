#include "server/rpc/staged_slice.h"

#include <utility>

namespace gemmd {
namespace {

struct Owner {
  Owner(StagingBuffer buffer, Admission::Ticket ticket, LiveCount* answers)
      : buffer(std::move(buffer)), ticket(std::move(ticket)), answers(answers) {
    answers->Add();
  }
  ~Owner() {
    // The count goes last: when it is 0 the pool may go.
    buffer.Reset();
    ticket = Admission::Ticket();
    answers->Remove();
  }

  static void Destroy(void* owner) { delete static_cast<Owner*>(owner); }

  StagingBuffer buffer;
  Admission::Ticket ticket;
  LiveCount* const answers;
};

}  // namespace

grpc::Slice StagedSlice(StagingBuffer buffer, Admission::Ticket ticket,
                        LiveCount* answers) {
  void* const data = buffer.data();
  const size_t size = buffer.size();
  return grpc::Slice(data, size, &Owner::Destroy,
                     new Owner(std::move(buffer), std::move(ticket), answers));
}

}  // namespace gemmd
